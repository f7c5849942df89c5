import { z } from 'zod';
import type { Guest } from './guest.ts';

/** A path in the guest: absolute, or under the desktop user's home with or without `~/`. */
export const GuestPath = z
  .string()
  .min(1)
  .max(4096)
  .refine((path) => !path.includes('\0'), 'must not hold a NUL character')
  .refine((path) => !/^~[^/]/.test(path), "only the desktop user's own home can be named: write ~/ or the whole path");

/** Every image keeps the desktop user's home where Debian puts it. */
function homeOf(account: Guest['account']): string {
  return `/home/${account.name}`;
}

/** @returns the absolute path; `~` and relative paths begin at the desktop user's home, as OSWorld's guests read them */
export function resolveGuestPath(path: string, account: Guest['account']): string {
  const home = homeOf(account);
  if (path === '~') return home;
  if (path.startsWith('~/')) return `${home}/${path.slice(2)}`;
  return path.startsWith('/') ? path : `${home}/${path}`;
}
