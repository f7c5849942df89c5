import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { killFound, nowTicks, qemuProcesses } from '../../runner/replica/host-processes.ts';

/** A process that looks like a QEMU of that uuid, and ends when its standard input does. */
async function lookalike(uuid: string): Promise<ChildProcess> {
  const child = spawn('sh', ['-c', 'echo up; read -r line', 'qemu', '-nodefaults', '-uuid', uuid], {
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  await once(child.stdout, 'data');
  return child;
}

describe('processes of this host', () => {
  it('are recognised by uuid and start time, and killed', async () => {
    const uuid = randomUUID();
    const before = await nowTicks();
    const child = await lookalike(uuid);
    const ended = once(child, 'exit');
    const found = (await qemuProcesses()).find((it) => it.uuid === uuid);
    expect(found?.pid).toBe(child.pid);
    expect(found?.startTicks).toBeGreaterThanOrEqual(before);
    if (!found) return;
    await killFound({ ...found, startTicks: found.startTicks - 1 });
    expect(child.signalCode, 'another process, which has that pid now').toBeNull();
    await killFound(found);
    await ended;
    expect(child.signalCode).toBe('SIGKILL');
    await killFound(found);
  });
});
