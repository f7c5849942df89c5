import path from 'node:path';
import { execa } from 'execa';
import { expect, it } from 'vitest';

const root = path.resolve(import.meta.dirname, '../..');
/** Every file with tests that need OSWorld's tasks. */
const FILES = ['test/unit/functions/osworld.test.ts', 'test/integration/cli-submit.test.ts', 'test/vm/osworld.test.ts'];

const vitest = (env: Record<string, string>) =>
  execa('npx', ['vitest', 'run', '--config', 'test/vitest.config.ts', '-t', 'OSWorld', ...FILES], {
    ...{ cwd: root, reject: false, all: true, stdin: 'ignore' },
    env: { GYMBUS_OSWORLD: '/nonexistent', NO_COLOR: '1', ...env },
  });

it("names the tests that are left out where OSWorld's tasks are not there, and none of them fails", async () => {
  const { all, exitCode } = await vitest({ CI: '' });
  expect(exitCode, all).toBe(0);
  for (const file of FILES) expect(all).toContain(`skipped: ${file} > `);
  expect(all).toMatch(/\d+ passed, 0 failed, \d+ skipped/);
});

it('fails under CI, where none may be left out', async () => {
  const { all, exitCode } = await vitest({ CI: 'true' });
  expect(exitCode).toBe(1);
  expect(all).toContain('osworld tests may not be skipped under CI: no OSWorld tasks at /nonexistent');
  expect(all).toContain(`0 passed, ${FILES.length} failed, 0 skipped`);
});
