import { defineConfig } from 'vitest/config';

const minute = 60_000;

/** One project a kind of test; each folder's tests run under its limits. No retries anywhere: a flaky test is a fault. */
export default defineConfig({
  test: {
    root: new URL('..', import.meta.url).pathname,
    reporters: ['default', new URL('support/account-reporter.ts', import.meta.url).pathname],
    retry: 0,
    globalSetup: new URL('support/leak-check.ts', import.meta.url).pathname,
    projects: [
      { extends: true, test: { name: 'unit', include: ['test/unit/**/*.test.ts'], testTimeout: 20_000 } },
      {
        extends: true,
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          testTimeout: minute,
          hookTimeout: minute,
        },
      },
      {
        extends: true,
        test: {
          name: 'vm',
          include: ['test/vm/**/*.test.ts'],
          // Some make a template: a minute where nothing else runs, several on a busy machine.
          testTimeout: 15 * minute,
          hookTimeout: 15 * minute,
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          name: 'faults',
          include: ['test/faults/**/*.test.ts'],
          testTimeout: 5 * minute,
          hookTimeout: 10 * minute,
          fileParallelism: false,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
