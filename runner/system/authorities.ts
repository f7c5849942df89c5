import { readFileSync } from 'node:fs';

/**
 * Reads a PEM file of certificate authorities. TLS itself takes any bytes without a word, and trusts nobody then.
 * @throws an error that says why it is of no use, without naming the file
 */
export function readAuthorities(file: string): Buffer {
  const bytes = readFileSync(file);
  if (!bytes.includes('-----BEGIN CERTIFICATE-----') && !bytes.includes('-----BEGIN TRUSTED CERTIFICATE-----')) {
    throw new Error('there is no certificate in it');
  }
  return bytes;
}
