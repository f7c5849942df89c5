import { describe, expect, it } from 'vitest';
import { HostSpecError, parseHostSpec } from '../../runner/host/host-spec.ts';

const gib = 2 ** 30;

describe('a host to plan', () => {
  it('is what is written', () => {
    expect(parseHostSpec('cores=88,memory=768G,disk=4T,numa=2,usd_per_day=235,accel=kvm')).toEqual({
      ...{
        cores: 88,
        memoryBytes: 768 * gib,
        diskBytes: 4_096 * gib,
        numaNodes: 2,
        usdPerDay: 235,
        accelerator: 'kvm',
      },
    });
    expect(parseHostSpec(' disk=1.5TiB, cores=2 ,memory=512M')).toEqual({
      ...{ cores: 2, memoryBytes: gib / 2, diskBytes: 1_536 * gib, numaNodes: 1, usdPerDay: null, accelerator: null },
    });
  });

  it.each([
    ['', '--host: "" is no field=value; write it like cores=88'],
    ['cores=8,memory=16G', '--host: disk is missing'],
    ['cores=8;memory=16G', '--host: "cores=8;memory=16G" is no field=value'],
    ['cores=8,ram=16G', '--host: there is no field "ram"; there are cores, memory, disk, numa, usd_per_day, accel'],
    ['cores=8,cores=9', '--host: cores is given twice'],
    ['cores=0,memory=16G,disk=1T', '--host cores=0: must be a whole number from 1 to 4096'],
    ['cores=1e3,memory=16G,disk=1T', '--host cores=1e3: must be a whole number'],
    ['cores=8,memory=16,disk=1T', '--host memory=16: must be a size with M, G or T, like memory=768G'],
    ['cores=8,memory=0G,disk=1T', '--host memory=0G: must be a size'],
    ['cores=8,memory=-1G,disk=1T', '--host memory=-1G: must be a size'],
    ['cores=8,memory=16G,disk=1T,numa=9', '--host numa=9: more memory nodes than cores (8)'],
    ['cores=8,memory=16G,disk=1T,usd_per_day=free', '--host usd_per_day=free: must be a number above 0'],
    ['cores=8,memory=16G,disk=1T,accel=xen', '--host accel=xen: must be kvm or tcg'],
  ])('that is written wrongly is refused: %s', (text, message) => {
    expect(() => parseHostSpec(text)).toThrow(HostSpecError);
    expect(() => parseHostSpec(text)).toThrow(message);
  });
});
