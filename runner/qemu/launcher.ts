/** Numbers of system calls, on each processor architecture Node runs QEMU on: prctl, setgroups, setresgid, setresuid, prlimit64, sched_setaffinity. */
const CALLS: Partial<Record<NodeJS.Architecture, readonly number[]>> = {
  x64: [157, 116, 119, 117, 302, 203],
  arm64: [167, 159, 149, 147, 261, 122],
};

/** A user other than the runner's own, whose rights a process gets and no others. */
export interface MachineUser {
  name: string;
  uid: number;
  gid: number;
  /** Supplementary groups. */
  groups: readonly number[];
}

/** What a process may do and take. */
export interface Rights {
  /** Null: whatever the runner is. */
  user: MachineUser | null;
  /** Files of cgroups to write oneself into, before a byte is charged to anybody. */
  joins: readonly string[];
  /** Most bytes of writable private memory, mapped and not yet used ones included; null where a cgroup bounds it. */
  dataBytes: number | null;
  /** Whether the kernel may merge its memory with that of others (KSM). */
  mergeMemory?: boolean;
  /** Numbers of the processors that it may use; null for all. */
  cpus?: readonly number[] | null;
}

/** Of a process that is nobody's but the runner's. */
export const OWN_RIGHTS: Rights = { user: null, joins: [], dataBytes: null };

/**
 * Runs in place of QEMU until it becomes it (perl-base is part of every Debian). As the runner's user it joins its cgroups and is
 * bounded: no core files, which would hold a guest's memory; of descriptors QEMU needs some dozens. Should the host run out of memory,
 * it goes before the runner. Huge pages off: a clone pays for each page it touches, 2 MiB at a time with them. Where asked for, its memory
 * is up for merging; a kernel that cannot (before 6.4) leaves it. Then it gives up all rights. Only after that it asks for SIGKILL when the runner dies, for the kernel forgets that with a change of user; and ends at
 * once should the runner be dead already.
 */
const LAUNCHER = `
my ($calls, $parent, $user, $data, $merge, $cpus, $joins) = splice(@ARGV, 0, 7);
my ($prctl, $setgroups, $setresgid, $setresuid, $prlimit, $setaffinity) = map { $_ + 0 } split(/,/, $calls);
for my $file (splice(@ARGV, 0, $joins)) {
  my $group;
  open($group, '>', $file) && defined(syswrite($group, '0')) or die "launcher: cannot join $file: $!\\n";
}
sub bound {
  my ($resource, $most) = @_;
  my $now = "\\0" x 16;
  syscall($prlimit, 0, $resource, 0, $now) == 0 or die "launcher: cannot read limit $resource: $!\\n";
  my (undef, $hard) = unpack('QQ', $now);
  $most = $hard if $hard < $most;
  my $new = pack('QQ', $most, $most);
  syscall($prlimit, 0, $resource, $new, 0) == 0 or die "launcher: cannot set limit $resource: $!\\n";
}
bound(4, 0);
bound(7, 1024);
bound(2, $data + 0) if $data;
if (open(my $score, '>', '/proc/self/oom_score_adj')) { syswrite($score, '500') }
syscall($prctl, 41, 1, 0, 0, 0) == 0 or die "launcher: cannot turn huge pages off: $!\\n";
syscall($prctl, 67, 1, 0, 0, 0) if $merge;
if ($cpus ne '') {
  my $mask = "\\0" x 512;
  vec($mask, $_, 1) = 1 for split(/,/, $cpus);
  syscall($setaffinity, 0, length($mask), $mask) >= 0 or die "launcher: cannot keep to processors $cpus: $!\\n";
}
if ($user ne '') {
  my ($uid, $gid, @groups) = map { $_ + 0 } split(/,/, $user);
  my $list = pack('L*', @groups);
  syscall($setgroups, scalar(@groups), $list) == 0 or die "launcher: cannot give up its groups: $!\\n";
  syscall($setresgid, $gid, $gid, $gid) == 0 or die "launcher: cannot become group $gid: $!\\n";
  syscall($setresuid, $uid, $uid, $uid) == 0 or die "launcher: cannot become user $uid: $!\\n";
}
syscall($prctl, 38, 1, 0, 0, 0) == 0 or die "launcher: cannot rule out new privileges: $!\\n";
syscall($prctl, 1, 9, 0, 0, 0) == 0 or die "launcher: cannot tie qemu to its runner: $!\\n";
getppid() == $parent or die "launcher: the runner is gone\\n";
exec { $ARGV[0] } @ARGV or die "launcher: cannot start $ARGV[0]: $!\\n";
`;

/** The command line that runs QEMU with these rights and so that it cannot outlive this process. */
export function launch(qemuPath: string, args: readonly string[], rights: Rights): [string, ...string[]] {
  const calls = CALLS[process.arch];
  if (calls === undefined) throw new Error(`qemu cannot be tied to its runner on ${process.arch}`);
  const { user, joins, dataBytes, mergeMemory = false, cpus } = rights;
  const who = user === null ? '' : [user.uid, user.gid, ...user.groups].join(',');
  const limits = [
    who,
    String(dataBytes ?? 0),
    mergeMemory ? '1' : '0',
    (cpus ?? []).join(','),
    String(joins.length),
    ...joins,
  ];
  return ['perl', '-e', LAUNCHER, calls.join(','), String(process.pid), ...limits, qemuPath, ...args];
}
