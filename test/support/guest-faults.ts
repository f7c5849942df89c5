import { once } from 'node:events';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { createConnection, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseRegisters } from '../../runner/replica/guest-silence.ts';
import type { VirtualReplica } from '../../runner/replica/replica.ts';

/** One way in which a guest breaks. */
export interface GuestFault {
  /** As the table of faults names it. */
  name: string;
  /** Brings it about, run in the guest as root; null where it takes more. */
  script: string | null;
  /** For so long it must have been watched before. */
  watchedMs?: number;
  /** Brings it about in a leased replica. */
  inject(replica: VirtualReplica): Promise<unknown>;
  /** What is said to be the cause. */
  cause: RegExp;
  /** Whether the machine itself dies of it: a job that does that to each of its machines is poison. */
  kills: boolean;
  /** What happens to it. */
  action: string;
}

const never = new AbortController().signal;
const PATIENCE_MS = 60_000;

/** @returns once it is started: some of these are the last that a guest does */
const asRoot = (script: string) => (replica: VirtualReplica) =>
  replica.guest.spawn({ argv: ['sh', '-c', script], user: 'root' }, never).catch(() => undefined);

const byScript = (script: string) => ({ script, inject: asRoot(script) });
const byHost = (inject: GuestFault['inject']) => ({ script: null, inject });

export const GUEST_FAULTS: readonly GuestFault[] = [
  {
    name: 'QEMU exit',
    ...byHost(async (replica) => process.kill(replica.machine.pid, 'SIGKILL')),
    cause: /^qemu exited with signal SIGKILL$/,
    kills: true,
    action: 'seen by the exit of the process',
  },
  {
    name: 'kernel panic',
    ...byScript('echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger'),
    cause: /^guest kernel panicked \(GUEST_PANICKED\)$/,
    kills: true,
    action: 'told by the panic device',
  },
  {
    name: 'killed X server',
    ...byScript('pkill -9 -x Xorg'),
    cause: /^the X server ended$/,
    kills: false,
    action: 'told by the helper',
  },
  {
    name: 'dead helper',
    ...byScript('pkill -9 -f gymbus-helper.py'),
    cause: /^the helper in the guest died$/,
    kills: false,
    action: 'told by QEMU: its port was closed',
  },
  {
    name: 'out of memory',
    ...byScript('exec perl -e \'while (1) { push @kept, "x" x (32 << 20) }\''),
    cause: /^the guest ran out of memory: its kernel ended perl$/,
    kills: false,
    action: 'told by the helper',
  },
  {
    name: 'read-only file system',
    ...byScript('echo 1 > /proc/sys/kernel/sysrq; echo u > /proc/sysrq-trigger'),
    cause: /^the disk of the guest became read-only/,
    kills: false,
    action: 'told by the helper',
  },
  {
    name: 'hung X server',
    ...byScript('pkill -STOP -x Xorg'),
    cause: /^the X server hangs: no answer for \d+ s$/,
    kills: false,
    action: 'found by a look at it',
  },
  {
    name: 'hung helper',
    ...byScript('pkill -STOP -f gymbus-helper.py'),
    cause: /^the helper in the guest hangs; its agent answers$/,
    kills: false,
    action: 'found by its silence',
  },
  {
    name: 'hung application',
    ...byHost(asRoot('pkill -STOP -x mousepad')),
    // It has to have answered a look: one that never did may not know how.
    watchedMs: 12_000,
    cause: /^the application Mousepad \(.*\) hangs: no answer and no work for \d+ s$/,
    kills: false,
    action: 'found by a look at it',
  },
  {
    name: 'program that takes the processor',
    ...byScript('echo -1 > /proc/sys/kernel/sched_rt_runtime_us; exec chrt -f 99 sh -c "while :; do :; done"'),
    cause: /^the guest is silent: a program keeps its processor from all others$/,
    kills: false,
    action: 'found by its silence',
  },
  {
    name: 'soft lockup',
    ...byHost(spinKernel),
    cause: /^the guest is silent: soft lockup, its kernel keeps the processor \(at ffffffff[0-9a-f]{8}\)$/,
    kills: false,
    action: 'found by its silence',
  },
];

/** A fault of the kernel itself, made by a debugger: where it idles, a jump to the same place. */
async function spinKernel({ machine }: VirtualReplica): Promise<void> {
  // QEMU makes it: in a folder that its user may write to.
  const folder = await mkdtemp(path.join(tmpdir(), 'gymbus-gdb-'));
  await chmod(folder, 0o777);
  const socketPath = path.join(folder, 'gdb.sock');
  const monitor = (line: string) => machine.qmp.execute('human-monitor-command', { 'command-line': line });
  const endMs = performance.now() + PATIENCE_MS;
  await monitor(`gdbserver unix:${socketPath},server=on,wait=off`);
  const socket = createConnection(socketPath);
  await once(socket, 'connect', { signal: AbortSignal.timeout(PATIENCE_MS) });
  try {
    // A debugger that comes stops the machine.
    for (;;) {
      const [processor] = parseRegisters(await machine.registers());
      if (processor?.level === 0 && processor.halted) {
        await debuggerSays(socket, `M${processor.at},2:ebfe`);
        await debuggerSays(socket, 'D');
        return;
      }
      if (performance.now() > endMs) throw new Error('the kernel never idles');
      await machine.run();
      await sleep(20);
      await machine.pause();
    }
  } finally {
    socket.destroy();
    await monitor('gdbserver none');
    await rm(folder, { recursive: true });
    await machine.run();
  }
}

/** One packet of the debugger's protocol, and its OK. */
async function debuggerSays(socket: Socket, text: string): Promise<void> {
  const sum = [...Buffer.from(text)].reduce((total, byte) => (total + byte) % 256, 0);
  socket.write(`$${text}#${sum.toString(16).padStart(2, '0')}`);
  let answer = '';
  // That the machine was stopped meanwhile is told in between.
  while (!/\$(OK|E..)#/.test(answer)) {
    const [chunk] = (await once(socket, 'data', { signal: AbortSignal.timeout(PATIENCE_MS) })) as [Buffer];
    answer += chunk.toString('latin1');
  }
  socket.write('+');
  if (!answer.includes('$OK#')) throw new Error(`the debugger's ${text} was answered with ${answer}`);
}

/** Shows an application, and waits until the fault can be brought about. */
export async function prepareFault(replica: VirtualReplica, { watchedMs = 0 }: GuestFault): Promise<void> {
  await replica.guest.spawn({ argv: ['mousepad'] }, never);
  await replica.settle({ minMs: 500, maxMs: 20_000 }, never);
  await replica.screenshot(never);
  await sleep(watchedMs);
}
