import { mkdir } from 'node:fs/promises';
import { JetStreamApiError } from '@nats-io/jetstream';
import { describe, expect, it } from 'vitest';
import { BusRefused } from '../../../runner/bus/errors.ts';
import { CliError, EXIT } from '../../../runner/cli/error.ts';
import { asCliError } from '../../../runner/cli/explain.ts';
import { StorageAway } from '../../../runner/storage/errors.ts';

describe('what a person is told of an error', () => {
  it('is its message, where that says what to do', () => {
    expect(asCliError(new BusRefused('too old; upgrade it'))).toMatchObject({
      message: 'too old; upgrade it',
      exitCode: EXIT.no,
    });
    expect(asCliError(new StorageAway('no answer'))?.message).toContain('AWS_ENDPOINT_URL');
    const missing = new JetStreamApiError({ code: 404, err_code: 10059, description: 'stream not found' });
    expect(asCliError(missing)?.message).toContain('gymbus streams ensure');
  });

  it('is the folder, and the variable that names another, where a file system refuses', async () => {
    const refused = await mkdir('/proc/self/status/data').catch((error: unknown) => error);
    expect(asCliError(refused)?.message).toMatch(/^cannot mkdir \/proc\/self\/status\/data \(ENOTDIR\): .*GYMBUS_DATA/);
    const full = Object.assign(new Error('no space'), { code: 'ENOSPC', syscall: 'write' });
    // Which file it was is not known: no remedy fits for certain.
    expect(asCliError(full)).toBeNull();
    expect(asCliError(Object.assign(full, { path: '/x' }))?.message).toContain('free some disk');
  });

  it.each([
    ['EACCES', { root: false, override: false }, /: run it as a user who may, as root for example, or set GYMBUS_DATA/],
    ['EPERM', { root: false, override: false }, /: run it as a user who may, as root for example/],
    ['EACCES', { root: true, override: false }, /: root has no CAP_DAC_OVERRIDE here, as in a container .*GYMBUS_DATA/],
    ['EPERM', { root: true, override: false }, /: root has no CAP_DAC_OVERRIDE here/],
    ['EACCES', { root: true, override: true }, /: root is refused it by the file system .*the container.*GYMBUS_DATA/],
    ['EROFS', { root: true, override: true }, /: set GYMBUS_DATA and GYMBUS_CACHE to folders that can be written to$/],
  ])('of %s says what is true of %j', (code, rights, said) => {
    const refused = Object.assign(new Error('no'), { code, syscall: 'mkdir', path: '/x' });
    const message = asCliError(refused, () => rights)?.message;
    expect(message).toMatch(/^cannot mkdir \/x \(E[A-Z]+\): /);
    expect(message).toMatch(said);
    if (rights.root) expect(message).not.toContain('as root for example');
  });

  it('is the interruption, where a sleep or a child was cut short by one', () => {
    const interrupted = new CliError('interrupted', EXIT.interrupted);
    const cut = Object.assign(new Error('The operation was aborted', { cause: interrupted }), { name: 'AbortError' });
    expect(asCliError(cut)).toBe(interrupted);
    expect(asCliError(interrupted)).toBe(interrupted);
  });

  it('is nothing, where nobody foresaw it: then the stack is shown', () => {
    expect(asCliError(new TypeError('x is undefined'))).toBeNull();
    expect(asCliError('a string')).toBeNull();
  });
});
