import { networkInterfaces } from 'node:os';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isPrivateAddress } from '../../../functions/download/address.ts';
import { InputKeyError, inputKey } from '../../../functions/download/input-key.ts';

describe('addresses a job may not reach', () => {
  it.each([
    '127.0.0.1',
    '127.255.255.254',
    '0.0.0.0',
    '10.1.2.3',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.0.1',
    '169.254.169.254',
    '100.64.0.1',
    '198.18.0.1',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    'fe80::1',
    'fd12::1',
    'ff02::1',
    '::ffff:127.0.0.1',
    '::ffff:a9fe:a9fe',
    '64:ff9b::7f00:1',
    '2002:7f00:1::',
    '2001:0:7f00::1',
    'no address',
  ])('%s', (address) => expect(isPrivateAddress(address)).toBe(true));

  it.each(['1.1.1.1', '8.8.8.8', '172.32.0.1', '172.15.0.1', '100.128.0.1', '2606:4700::1111', '2a00:1450::1'])(
    'but %s may be',
    (address) => expect(isPrivateAddress(address)).toBe(false),
  );

  it("this host's own are among them", () => {
    const own = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
    expect(own.length).toBeGreaterThan(0);
    for (const { address } of own) expect(isPrivateAddress(address), address).toBe(true);
  });
});

describe("keys of a batch's inputs", () => {
  it('may be whole or relative', () => {
    expect(inputKey('a/b.txt', 'n-1')).toBe('inputs/n-1/a/b.txt');
    expect(inputKey('inputs/n-1/a', 'n-1')).toBe('inputs/n-1/a');
    expect(inputKey('deep/a b (1) ä.txt', 'n-1')).toBe('inputs/n-1/deep/a b (1) ä.txt');
    expect(inputKey('..hidden', 'n-1')).toBe('inputs/n-1/..hidden');
  });
  it.each([
    ...['', '/a', 'a//b', 'a/', 'a/./b', '../n-2/a', 'a/../../b', '.', '..', 'inputs/n-2/a', 'inputs/n-10/a'],
    ...['inputs/n-1/', 'inputs/n-1/../x', 'a\\b', 'a\0', 'a\nb', 'ä'.repeat(510)],
  ])('refuses %j', (key) => expect(() => inputKey(key, 'n-1')).toThrow(InputKeyError));
  it('never lie outside the folder', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom('a', '.', '/', 'inputs/', 'n-1', '\\') }), (name) => {
        try {
          const key = inputKey(name, 'n-1');
          expect(new URL(key, 'http://x/').pathname).toBe(`/${key}`);
          expect(key.startsWith('inputs/n-1/')).toBe(true);
        } catch (error) {
          expect(error).toBeInstanceOf(InputKeyError);
        }
      }),
    );
  });
});
