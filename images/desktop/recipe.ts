import { join } from 'node:path';
import { assetsDirectory } from '../assets.ts';
import { Recipe } from '../recipe.ts';

const drivers = '/lib/modules/*/kernel/drivers';

/** Kernel drivers for hardware that no replica has: half of the tree's files. */
const otherHardware = [
  'ata atm bluetooth bus char/tpm comedi crypto dax firewire fpga gnss gpio gpu hid hsi hwmon hwtracing i2c iio infiniband',
  'input/joystick input/mouse input/touchscreen isdn leds macintosh md media memstick mfd mmc mtd net nfc ntb nvdimm nvme',
  'parport pci/hotplug pcmcia platform power powercap rapidio regulator rtc scsi soundwire spi ssb staging target thunderbolt',
  'tty/serial usb vfio w1 watchdog',
]
  .join(' ')
  .split(' ');
const otherFileSystems = 'btrfs ceph cifs f2fs gfs2 jfs nfs nfsd ntfs3 ocfs2 orangefs smb ubifs xfs'.split(' ');

const packages = [
  // the system
  'linux-image-amd64 systemd-sysv udev kmod dbus dbus-user-session libpam-systemd polkitd qemu-guest-agent busybox-static',
  'libnss-myhostname tzdata sudo procps psmisc less nano file zip unzip iproute2',
  // the screen
  'xserver-xorg-core xserver-xorg-input-evdev x11-xserver-utils x11-utils x11-xkb-utils xkb-data xdotool wmctrl xclip',
  'openbox tint2 jgmenu gtk2-engines adwaita-icon-theme librsvg2-common fonts-dejavu-core fonts-droid-fallback',
  // what every desktop has
  'pcmanfm lxterminal shared-mime-info desktop-file-utils xdg-user-dirs xdg-utils',
  'python3 python3-xlib python3-pil python3-tk',
]
  .join(' ')
  .split(' ');

/** Where the panel's configuration looks for launchers. */
const PANEL = '/etc/gymbus/panel';

/** What makes one image of a desktop another than the next. */
type Own = Pick<Recipe, 'name' | 'description' | 'memory_mib' | 'disk_mib'> & {
  /** Debian packages beside those of every desktop; those that matter most are named in `image.json`. */
  readonly packages: readonly string[];
  readonly mainPackages: readonly string[];
  readonly excludePaths: readonly string[];
  readonly includePaths: readonly string[];
  /** Hosts that its jobs may ask for; by default none. */
  readonly network?: Recipe['network'];
  /** The panel's launchers from left to right: names of desktop files. */
  readonly panel: readonly string[];
};

/**
 * The recipe of a desktop: Openbox, a panel, file manager and terminal, laid out as in `desktop/files`; then the image's
 * own tree, `<name>/files`: its programs in the panel and in the menus, their settings, its part of the warm-up.
 */
export function desktopRecipe(own: Own): Recipe {
  return Recipe.parse({
    name: own.name,
    description: own.description,
    suite: 'bookworm',
    packages: [...packages, ...own.packages],
    python_packages: {
      PyAutoGUI: '0.9.54',
      MouseInfo: '0.1.3',
      PyGetWindow: '0.0.9',
      PyMsgBox: '2.0.1',
      PyRect: '0.2.0',
      PyScreeze: '1.0.1',
      pyperclip: '1.11.0',
      pytweening: '1.2.0',
    },
    exclude_paths: [
      ...['doc', 'man', 'info', 'help', 'locale', 'lintian', 'bug', 'gtk-doc'].map((name) => `/usr/share/${name}/*`),
      ...['poppler', 'ghostscript', 'fonts/type1', 'fonts/X11'].map((name) => `/usr/share/${name}/*`),
      ...otherHardware.map((name) => `${drivers}/${name}/*`),
      ...otherFileSystems.map((name) => `/lib/modules/*/kernel/fs/${name}/*`),
      '/lib/modules/*/kernel/sound/*',
      '/lib/modules/*/kernel/arch/x86/crypto/*',
      '/lib/modules/*/kernel/arch/x86/kvm/*',
      '/lib/modules/*/kernel/drivers/input/joydev.ko',
      '/lib/modules/*/kernel/drivers/input/misc/*',
      '/boot/System.map-*',
      // No OpenGL in this guest, and the compiler behind it is its largest library.
      '/usr/lib/x86_64-linux-gnu/dri/*',
      '/usr/lib/x86_64-linux-gnu/libLLVM-*',
      '/usr/lib/x86_64-linux-gnu/libz3.so*',
      '/usr/lib/gcc/*',
      ...own.excludePaths,
    ],
    include_paths: [
      ...[
        'gpu/drm/drm*',
        'gpu/drm/tiny/*',
        'gpu/drm/ttm/*',
        'gpu/drm/virtio/*',
        'net/virtio_net.ko',
        'net/net_failover.ko',
      ].map((name) => `${drivers}/${name}`),
      '/lib/modules/*/kernel/arch/x86/crypto/crc32c-intel.ko',
      `${drivers}/hid/hid.ko`,
      '/usr/share/doc/*/copyright',
      '/usr/share/locale/locale.alias',
      ...own.includePaths,
    ],
    initrd_modules: ['virtio_pci', 'virtio_blk', 'ext4'],
    files: ['desktop', own.name].map((tree) => join(assetsDirectory, tree, 'files')),
    directories: [
      ...'Desktop Documents Downloads Music Pictures Public Templates Videos .cache .local/share'
        .split(' ')
        .map((name) => `/home/user/${name}`),
      PANEL,
    ],
    user: { name: 'user', uid: 1000, password: 'password', groups: ['sudo', 'video', 'input', 'tty', 'adm'] },
    time_zone: 'America/New_York',
    enabled_units: ['desktop.service', 'qemu-guest-agent.service'],
    masked_units: [
      // Clocks that would wake every replica, each at its own time.
      'apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer',
      'systemd-tmpfiles-clean.timer',
      // Consoles: the screen is the desktop's, the serial line is the kernel's.
      'getty@tty1.service serial-getty@ttyS0.service getty.target getty-static.service console-getty.service',
      // Steps of the boot that do nothing for a machine which is made anew each time.
      'e2scrub_reap.service remote-fs.target systemd-pstore.service systemd-random-seed.service systemd-update-utmp.service',
      'systemd-update-utmp-runlevel.service systemd-machine-id-commit.service systemd-journal-flush.service',
      'systemd-hwdb-update.service systemd-update-done.service systemd-firstboot.service systemd-boot-system-token.service',
      'systemd-modules-load.service modprobe@loop.service modprobe@dm_mod.service modprobe@configfs.service modprobe@fuse.service',
      'modprobe@efi_pstore.service systemd-sysusers.service systemd-binfmt.service ldconfig.service systemd-fsck-root.service systemd-ask-password-console.path',
      'systemd-ask-password-wall.path systemd-journal-catalog-update.service systemd-pcrphase.service',
      'systemd-pcrphase-sysinit.service systemd-pcrmachine.service systemd-network-generator.service',
      'dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount',
      'sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount kmod-static-nodes.service',
      'generator:systemd-gpt-auto-generator generator:systemd-getty-generator generator:systemd-hibernate-resume-generator',
      'generator:systemd-cryptsetup-generator generator:systemd-veritysetup-generator generator:systemd-integritysetup-generator',
      'generator:systemd-bless-boot-generator generator:systemd-rc-local-generator generator:systemd-sysv-generator',
      'generator:systemd-system-update-generator generator:systemd-run-generator generator:systemd-debug-generator',
    ]
      .join(' ')
      .split(' '),
    finish: [
      ['/usr/lib/x86_64-linux-gnu/glib-2.0/glib-compile-schemas', '/usr/share/glib-2.0/schemas'],
      ['ln', '-sf', 'python3', '/usr/bin/python'],
      // Compiled ahead: the guest's users could not save what they compile, and would do it again in each clone.
      ['python3', '-m', 'compileall', '-q', '/usr/local/lib/python3.11/dist-packages', '/usr/local/lib/gymbus'],
      ['fc-cache', '-s'],
      // The panel takes them by name.
      ...own.panel.map((name, place) => {
        const link = `${PANEL}/${String(place).padStart(2, '0')}-${name}.desktop`;
        return ['ln', '-s', `/usr/share/applications/${name}.desktop`, link];
      }),
    ],
    memory_mib: own.memory_mib,
    vcpus: 1,
    resolution: { width: 1280, height: 720 },
    video_memory_mib: 8,
    disk_mib: own.disk_mib,
    kernel_command_line: [
      'root=/dev/vda rw console=ttyS0 quiet loglevel=4 systemd.show_status=0 fsck.mode=skip net.ifnames=0',
      // Nothing in the guest asks for the accounts of pressure and of memory by group, which cost each switch and each page.
      'mitigations=off nokaslr audit=0 apparmor=0 psi=0 cgroup_disable=memory nowatchdog init_on_alloc=0 transparent_hugepage=never',
      'vt.global_cursor_default=0 panic=-1',
      // Words the kernel does not know reach systemd as its environment: no system call filters, each costs 0.1 s to start.
      'SYSTEMD_SECCOMP=0',
    ].join(' '),
    readiness: {
      windows: [
        { class: 'Tint2', type: 'dock' },
        { class: 'Pcmanfm', type: 'desktop' },
      ],
      processes: ['Xorg', 'openbox', 'tint2', 'pcmanfm'],
      equal_pictures_ms: 1000,
      timeout_s: 300,
    },
    // The applications' first starts are the slow ones: under emulation on a busy host, minutes each.
    warmup: [{ argv: ['/usr/local/lib/gymbus/warmup'], timeout_s: 1_800 }],
    ...(own.network ? { network: own.network } : {}),
    volatile_regions: [{ name: 'panel clock', x: 1210, y: 686, width: 70, height: 34 }],
    main_packages: [
      'linux-image-amd64 systemd xserver-xorg-core openbox tint2 pcmanfm lxterminal python3 qemu-guest-agent'.split(
        ' ',
      ),
      own.mainPackages,
    ].flat(),
  });
}
