import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { LockHeld, lockFile } from '../../runner/system/lock.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-lock-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

it('is held by one, and passes on when it is given back', async () => {
  const file = path.join(folder, 'deep/er/one');
  const order: string[] = [];
  const first = await lockFile(file);
  const second = lockFile(file, { onWait: () => order.push('waits') }).then(async (lock) => {
    order.push('second');
    await lock[Symbol.asyncDispose]();
  });
  await using _other = await lockFile(path.join(folder, 'other'), { waitMs: 0 });
  await expect.poll(() => order).toEqual(['waits']);
  order.push('release');
  await first[Symbol.asyncDispose]();
  await second;
  expect(order).toEqual(['waits', 'release', 'second']);
});

it('is refused to who does not wait, or not so long, and says what it is told to', async () => {
  const file = path.join(folder, 'two');
  await using _held = await lockFile(file);
  await expect(lockFile(file, { waitMs: 0 })).rejects.toThrow(`${file} is locked by another process`);
  await expect(lockFile(file, { waitMs: 50 })).rejects.toBeInstanceOf(LockHeld);
  await expect(lockFile(file, { waitMs: 0, held: 'the stack runs already' })).rejects.toThrow('the stack runs already');
});

it('ends a wait with its signal, and is not taken by who has gone', async () => {
  const file = path.join(folder, 'three');
  const held = await lockFile(file);
  const stop = new AbortController();
  const waiting = lockFile(file, { signal: stop.signal, onWait: () => stop.abort(new Error('tired of waiting')) });
  await expect(waiting).rejects.toThrow('tired of waiting');
  await expect(lockFile(file, { signal: stop.signal })).rejects.toThrow('tired of waiting');
  await held[Symbol.asyncDispose]();
  await (await lockFile(file, { waitMs: 0 }))[Symbol.asyncDispose]();
});

it('is free when its holder is killed, whatever children that has left', async () => {
  const file = path.join(folder, 'four');
  const lockModule = path.resolve(import.meta.dirname, '../../runner/system/lock.ts');
  const script = `import { spawn } from 'node:child_process';
    import { lockFile } from ${JSON.stringify(lockModule)};
    await lockFile(${JSON.stringify(file)});
    const child = spawn('sleep', ['60'], { detached: true, stdio: 'ignore' });
    console.log(process.pid, child.pid);
    setInterval(() => {}, 1000);`;
  const tsx = path.resolve(import.meta.dirname, '../../node_modules/.bin/tsx');
  const holder = execa(tsx, ['--input-type=module', '-e', script], { buffer: false, reject: false });
  const lines = holder.iterable()[Symbol.asyncIterator]();
  const [pid = 0, child = 0] = String((await lines.next()).value)
    .split(' ')
    .map(Number);
  try {
    await expect(lockFile(file, { waitMs: 0 })).rejects.toThrow(LockHeld);
    const next = lockFile(file, { waitMs: 10_000 });
    process.kill(pid, 'SIGKILL');
    await using _free = await next;
    process.kill(child, 0);
  } finally {
    process.kill(child, 'SIGKILL');
    await holder;
  }
});

it('is nobody else’s to take: a user who could read the file could hold it', async () => {
  const [made, found] = ['made', 'found'].map((name) => path.join(folder, name)) as [string, string];
  await writeFile(found, '', { mode: 0o644 });
  for (const file of [made, found]) {
    await using _held = await lockFile(file);
    expect((await stat(file)).mode & 0o777, file).toBe(0o600);
  }
});

it('says why it cannot be had at all', async () => {
  await expect(lockFile(path.join(folder, 'no\0name'))).rejects.toThrow(/null bytes/);
});
