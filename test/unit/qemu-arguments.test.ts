import { describe, expect, it } from 'vitest';
import {
  DESCRIPTOR,
  type Hardware,
  hardwareArguments,
  machineArguments,
  videoMemoryMib,
} from '../../runner/qemu/arguments.ts';

const hardware: Hardware = {
  accelerator: 'tcg',
  vcpus: 1,
  memoryMib: 1024,
  screen: { width: 1280, height: 720 },
  vmGenerationId: true,
};
const identity = { uuid: '11111111-1111-4111-8111-111111111111', generation: '22222222-2222-4222-8222-222222222222' };
const boot = { kind: 'boot', kernelPath: '/i/vmlinuz', initrdPath: '/i/initrd', cmdline: 'root=/dev/vda rw' } as const;

const argument = (args: string[], option: string): string | undefined => args[args.indexOf(option) + 1];
const all = (args: string[], option: string): string[] => args.filter((_, at) => args[at - 1] === option);

describe('machine arguments', () => {
  const template = machineArguments('t', hardware, identity, boot);
  const clone = machineArguments('c', hardware, identity, { kind: 'clone', overlayOf: null });

  it('shares memory in a template and takes a private view of it in a clone', () => {
    expect(argument(template, '-object')).toBe(
      'memory-backend-file,id=ram,size=1024M,mem-path=/proc/self/fd/7,share=on',
    );
    expect(argument(clone, '-object')).toBe('memory-backend-file,id=ram,size=1024M,mem-path=/proc/self/fd/7,share=off');
  });

  it('finds memory and disk by the descriptors it inherits, so that its user need not reach them', () => {
    for (const args of [template, clone]) {
      expect(all(args, '-add-fd')).toEqual(['fd=8,set=1', 'fd=9,set=1']);
      expect(argument(args, '-drive')).toContain('file=/dev/fdset/1,');
    }
  });

  it('talks through descriptors alone, so that nothing has to be found in a folder of its user’s', () => {
    for (const args of [template, clone]) {
      const channels = ['qmp', 'helper', 'serial', 'agent', 'network'] as const;
      const expected = channels.map((id) => `socket,id=${id},fd=${DESCRIPTOR[id]}`);
      expect(all(args, '-chardev')).toEqual(expected);
    }
  });

  it('reads through an overlay what lies under it by a descriptor, too, whatever path the overlay names', () => {
    const over = machineArguments('c', hardware, identity, { kind: 'clone', overlayOf: '/t/disk.raw' });
    expect(all(over, '-add-fd')).toEqual(['fd=8,set=1', 'fd=9,set=1', 'fd=10,set=2']);
    expect(argument(over, '-drive')).toContain('format=qcow2,backing.driver=raw,backing.file.driver=file,');
    expect(argument(over, '-drive')).toContain('backing.file.filename=/dev/fdset/2,');
    expect(over.join(' ')).not.toContain('/t/disk.raw');
    expect(over.join(' ')).toContain(hardwareArguments(hardware).join(' '));
  });

  it('boots a template and starts a clone paused, from the state to come, without a kernel', () => {
    expect(argument(template, '-append')).toBe('root=/dev/vda rw');
    expect(template).not.toContain('-incoming');
    for (const option of ['-kernel', '-initrd', '-append']) expect(clone).not.toContain(option);
    expect(argument(clone, '-incoming')).toBe('defer');
    expect(clone).toContain('-S');
  });

  it('gives both the same hardware, which is part of the template’s key', () => {
    const common = hardwareArguments(hardware);
    expect(template.join(' ')).toContain(common.join(' '));
    expect(clone.join(' ')).toContain(common.join(' '));
    for (const change of [
      { accelerator: 'kvm' },
      { vcpus: 2 },
      { memoryMib: 2048 },
      { screen: { width: 1920, height: 1080 } },
    ] as const) {
      expect(hardwareArguments({ ...hardware, ...change })).not.toEqual(common);
    }
  });

  it('forbids what a guest could misuse', () => {
    for (const args of [template, clone]) {
      expect(argument(args, '-sandbox')).toBe(
        'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny',
      );
      expect(args).toContain('-no-reboot');
      expect(argument(args, '-netdev')).toContain('restrict=on');
    }
  });

  it('has no device that punches holes into the memory of others', () => {
    expect(clone.join(' ')).not.toMatch(/balloon|virtio-mem|free-page|postcopy|exec:/);
  });

  it('tells each machine its own generation, unless it is to have none', () => {
    expect(all(clone, '-device')).toContain(`vmgenid,guid=${identity.generation}`);
    const without = machineArguments('c', { ...hardware, vmGenerationId: false }, identity, boot);
    expect(without.join(' ')).not.toContain('vmgenid');
  });

  it('holds the screen twice in video memory', () => {
    expect(videoMemoryMib({ width: 800, height: 600 })).toBe(4);
    expect(videoMemoryMib({ width: 1280, height: 720 })).toBe(8);
    expect(videoMemoryMib({ width: 1920, height: 1080 })).toBe(16);
  });
});
