import { z } from 'zod';
import type { Machine } from '../qemu/machine.ts';
import { NetworkChannel } from '../qemu/network-channel.ts';
import type { NetworkEnd } from './contract.ts';

/** systemd opens a socket in half a second of an emulated processor; on a starved host, in many. */
const DEADLINE_MS = 60_000;

/**
 * Listens on the machine's network channel and has the guest use it. The channel ends with the machine.
 * @throws GuestSilent, HelperError; the channel is closed then
 */
export async function openNetwork(
  { network, helper }: Pick<Machine, 'network' | 'helper'>,
  { accept, closed }: NetworkEnd,
  signal: AbortSignal,
): Promise<void> {
  const channel = new NetworkChannel(network, accept, closed);
  try {
    await helper.call('network', {}, z.unknown(), { deadlineMs: DEADLINE_MS, signal });
  } catch (error) {
    channel.close((error as Error).message);
    throw error;
  }
}
