import { type LookupAddress, type LookupAllOptions, lookup as systemLookup } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { isPrivateAddress } from './address.ts';

/** Finds all addresses of a name, as the system's `getaddrinfo` does. */
export type Lookup = (
  hostname: string,
  options: LookupAllOptions,
  done: (error: NodeJS.ErrnoException | null, found: LookupAddress[]) => void,
) => void;

/**
 * A look-up that leaves out the addresses that may not be reached. What it gives is what is connected to: a name that leads elsewhere
 * a moment later leads nobody there.
 * @param refused makes the error where none is left
 */
export function guardedLookup(
  allowPrivate: boolean,
  refused: (addresses: string) => Error,
  lookup: Lookup = systemLookup,
): LookupFunction {
  return (hostname, options, done) => {
    lookup(hostname, { ...options, all: true }, (error, found) => {
      if (error) return done(error, []);
      const allowed = allowPrivate ? found : found.filter(({ address }) => !isPrivateAddress(address));
      const [first] = allowed;
      if (!first) return done(refused(found.map(({ address }) => address).join(', ')), []);
      if (options.all) done(null, allowed);
      else done(null, first.address, first.family);
    });
  };
}
