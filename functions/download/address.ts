import { BlockList, isIP, isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';

/** Addresses that are not of the public internet: IANA's special-purpose registries, IPv4 and IPv6. */
const SPECIAL: readonly (readonly [network: string, prefix: number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
  ['::', 128],
  ['::1', 128],
  // Ways to write an IPv4 address in IPv6 (mapped, translated, 6to4, Teredo): a private one could hide in each.
  ['::ffff:0:0', 96],
  ['::ffff:0:0:0', 96],
  ['64:ff9b::', 96],
  ['64:ff9b:1::', 48],
  ['2002::', 16],
  ['2001::', 23],
  ['100::', 64],
  ['2001:db8::', 32],
  ['fc00::', 7],
  ['fe80::', 10],
  ['fec0::', 10],
  ['ff00::', 8],
];

const special = { ipv4: new BlockList(), ipv6: new BlockList() };
for (const [network, prefix] of SPECIAL) {
  const family = isIPv6(network) ? 'ipv6' : 'ipv4';
  special[family].addSubnet(network, prefix, family);
}

/** Whether an address is loopback, private, link-local (cloud metadata), this host's own, or otherwise not public. */
export function isPrivateAddress(address: string): boolean {
  const family = isIP(address);
  if (family === 0) return true;
  if (special[family === 6 ? 'ipv6' : 'ipv4'].check(address, family === 6 ? 'ipv6' : 'ipv4')) return true;
  const own = new BlockList();
  for (const { address: mine, family: kind } of Object.values(networkInterfaces()).flatMap((list) => list ?? [])) {
    own.addAddress(mine, kind === 'IPv6' ? 'ipv6' : 'ipv4');
  }
  return own.check(address, family === 6 ? 'ipv6' : 'ipv4');
}
