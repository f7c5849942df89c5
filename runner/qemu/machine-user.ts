import { stat } from 'node:fs/promises';
import { execa } from 'execa';
import { hasCapability, isRoot } from '../system/capabilities.ts';
import { findTool } from '../system/find-tool.ts';
import type { MachineUser } from './rights.ts';

/** QEMU shall run as a user that cannot be had; the message says what to do. */
export class MachineUserUnavailable extends Error {
  override readonly name = 'MachineUserUnavailable';
}

export interface MachineUserChoice {
  /** Null: as the runner itself. */
  user: MachineUser | null;
  /** In one line, for people. */
  description: string;
}

/** Made where it is missing. */
export const DEFAULT_USER = 'gymbus-qemu';
/** Of the kind that services have: no home, no shell, no password. */
export const USERADD = [
  '--system',
  '--user-group',
  '--no-create-home',
  '--home-dir',
  '/nonexistent',
  '--shell',
  '/usr/sbin/nologin',
];
const TOOL_DEADLINE_MS = 30_000;

/**
 * The user QEMU runs as. Where the runner is not root it is the runner's own: no other can be had.
 * @param wanted a name or a number; `root` for the runner's own rights; by default `gymbus-qemu`
 * @param options.make whether that one is made where it is missing; else it is only said that it will be
 * @throws MachineUserUnavailable
 */
export async function chooseMachineUser(
  wanted: string | undefined,
  options: { make: boolean },
): Promise<MachineUserChoice> {
  if (!isRoot()) {
    const uid = process.getuid?.();
    if (wanted !== undefined && wanted !== String(uid) && (await lookUp(wanted))?.uid !== uid) {
      throw new MachineUserUnavailable(
        `GYMBUS_QEMU_USER=${wanted}: only root may run QEMU as another user, and this runner is user ${uid}; unset it`,
      );
    }
    return { user: null, description: `QEMU runs as the runner's own user (${uid}), which is not root` };
  }
  if (wanted === 'root' || wanted === '0') {
    return { user: null, description: 'QEMU runs as root (GYMBUS_QEMU_USER=root)' };
  }
  if (!hasCapability('CAP_SETUID') || !hasCapability('CAP_SETGID')) {
    throw new MachineUserUnavailable(
      'QEMU cannot be run as another user: root lacks CAP_SETUID or CAP_SETGID here; grant them, or set GYMBUS_QEMU_USER=root',
    );
  }
  const known = await lookUp(wanted ?? DEFAULT_USER);
  if (!known && wanted === undefined && !options.make) {
    return { user: null, description: `QEMU will run as ${DEFAULT_USER}, which the first start of a runner makes` };
  }
  const found = known ?? (await instead(wanted));
  if (found.uid === 0) throw new MachineUserUnavailable(`GYMBUS_QEMU_USER=${wanted} is root: say root to mean it`);
  const user = { ...found, groups: [] };
  return { user, description: `QEMU runs as ${user.name} (user ${user.uid}, group ${user.gid})` };
}

type Account = Omit<MachineUser, 'groups'>;

async function instead(wanted: string | undefined): Promise<Account> {
  if (wanted !== undefined) {
    const uid = Number(wanted);
    // Numbers need no entry anywhere.
    if (/^\d+$/.test(wanted)) return { name: wanted, uid, gid: uid };
    throw new MachineUserUnavailable(
      `GYMBUS_QEMU_USER=${wanted}: there is no such user; make it (useradd ${USERADD.join(' ')} ${wanted}), or name another`,
    );
  }
  const useradd = await findTool('useradd');
  const made = useradd
    ? await execa(useradd, [...USERADD, DEFAULT_USER], { reject: false, timeout: TOOL_DEADLINE_MS })
    : { stderr: 'useradd is not installed' };
  // Another runner may have been first.
  const found = await lookUp(DEFAULT_USER);
  if (found) return found;
  throw new MachineUserUnavailable(
    `there is no user ${DEFAULT_USER} for QEMU, and it cannot be made (${made.stderr.trim()}): ` +
      `make it (useradd ${USERADD.join(' ')} ${DEFAULT_USER}), name another by GYMBUS_QEMU_USER, or set GYMBUS_QEMU_USER=root`,
  );
}

/** By name or number, wherever this host keeps its users. */
async function lookUp(nameOrUid: string): Promise<Account | null> {
  const { stdout, failed } = await execa('getent', ['passwd', nameOrUid], { reject: false, timeout: TOOL_DEADLINE_MS });
  const [name, , uid, gid] = stdout?.split(':') ?? [];
  if (failed || !name || !uid || !gid) return null;
  return { name, uid: Number(uid), gid: Number(gid) };
}

/** The same user, let into KVM by the group that may use it, unless that is root's. */
export async function forAccelerator(
  user: MachineUser | null,
  accelerator: 'kvm' | 'tcg',
): Promise<MachineUser | null> {
  if (user === null || accelerator === 'tcg') return user;
  const device = await stat('/dev/kvm').catch(() => null);
  return { ...user, groups: device && device.gid !== 0 ? [device.gid] : [] };
}
