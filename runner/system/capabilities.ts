import { readFileSync } from 'node:fs';

/** Bits of `CapEff`: see capabilities(7). */
const BITS = { CAP_DAC_OVERRIDE: 1n, CAP_SETGID: 6n, CAP_SETUID: 7n, CAP_SYS_ADMIN: 21n } as const;
type Capability = keyof typeof BITS;

export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** Root has every capability outside of containers, and few in most of them. */
export function hasCapability(capability: Capability): boolean {
  const [, mask = '0'] = /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8')) ?? [];
  return ((BigInt(`0x${mask}`) >> BITS[capability]) & 1n) === 1n;
}

/** What there is to do for root that may not mount. */
export const MOUNT_REMEDY =
  'root has no CAP_SYS_ADMIN here, as in most containers: give the container that and loop devices (docker run --privileged), or run it on the host';

/** Whether this is root that may not mount. */
export function isRootWithoutMount(): boolean {
  return isRoot() && !hasCapability('CAP_SYS_ADMIN');
}
