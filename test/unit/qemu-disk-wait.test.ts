import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { waitsForDisk } from '../../runner/qemu/proc-stat.ts';

/** Calls of the x86-64 kernel by number. While its vfork child lives, a parent is in the sleep that waiting for a disk is, too. */
const PARENT = `
$| = 1;
print "up\\n";
my $nap = pack('qq', 60, 0);
readline(STDIN);
if (syscall(58) == 0) { syscall(35, $nap, 0); syscall(60, 0); }
`;

describe('a process', () => {
  it('waits for the disk while one of its threads sleeps uninterruptibly', async () => {
    const child = spawn('perl', ['-e', PARENT], { stdio: ['pipe', 'pipe', 'inherit'], detached: true });
    const pid = child.pid ?? 0;
    const ended = once(child, 'exit');
    try {
      await once(child.stdout, 'data');
      expect(waitsForDisk(pid), 'it waits for a line').toBe(false);
      child.stdin.end('\n');
      await expect.poll(() => waitsForDisk(pid), { timeout: 10_000 }).toBe(true);
    } finally {
      process.kill(-pid, 'SIGKILL');
      await ended;
    }
    expect(waitsForDisk(pid), 'it is gone').toBe(false);
  });
});
