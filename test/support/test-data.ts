import path from 'node:path';

export const cacheDir = process.env.GYMBUS_CACHE ?? '/var/cache/gymbus';
/** The data directory of tests that play on real machines, kept from run to run for the template in it, whose making takes a minute or two. */
export const testDataDir = process.env.GYMBUS_TEST_DATA ?? path.join(cacheDir, 'test-data');
