import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { Guest } from '../../functions/guest.ts';
import type { Machine } from '../qemu/machine.ts';
import { difference, isBlack, type Picture, same } from '../qemu/picture.ts';
import type { ScreenPicture } from '../qemu/screen.ts';
import { nearbySpot, parkingSpot } from './parking.ts';
import type { Template } from './template.ts';

/**
 * What a clone must prove before it may be handed out. It wakes up as a copy: with the template's clock, random numbers and machine id,
 * and nothing yet says that its screen or its helper work.
 */
export type GateCheck = 'helper' | 'identity' | 'entropy' | 'clock' | 'black' | 'half-drawn' | 'frozen' | 'command';

/** A clone that may not be handed out, and which check it failed. */
export class GateFailed extends Error {
  override readonly name = 'GateFailed';
  readonly check: GateCheck;
  constructor(check: GateCheck, message: string, options?: ErrorOptions) {
    super(`restore gate, ${check}: ${message}`, options);
    this.check = check;
  }
}

/** What a clone is told to be. */
export interface GuestIdentity {
  /** 32 hex digits. */
  machineId: string;
  /** Which replica of this host has a machine id, for the message when a guest has another's. */
  holderOf(machineId: string): Promise<string | null>;
}

/** Largest difference to the host's clock that a clone may have. */
const MAX_SKEW_MS = 500;
const CLOCK_TRIES = 5;
/** Cold code under software emulation: 60 ms on an idle host, seconds on one with no processor to spare. */
const HELPER_DEADLINE_MS = 15_000;
/** The pointer is drawn within 0.1 s; some seconds on a starved host. */
const PICTURE_DEADLINE_MS = 15_000;
/** 0.2 s on an idle host, seconds on one with no processor to spare. */
const COMMAND_DEADLINE_MS = 15_000;
/** A picture that is nearly the template's is good enough, but waiting a little makes it the same. */
const RETURN_DEADLINE_MS = 3_000;
/** A warm guest draws the pointer in less; a picture costs some 4 ms of QEMU's processor time, and as much of ours. */
const POLL_MS = 20;
/** A clone's picture is the template's, pixel for pixel; what may differ is a pointer's shadow, not a window. */
const MAX_DIFFERENCE = 0.005;

const Restored = z.object({
  machine_id: z.string(),
  boot_id: z.string(),
  hostname: z.string(),
  crng_reseeded: z.boolean(),
});
const Clock = z.object({ time_us: z.number() });

/** Runs every check on a machine that runs. @throws GateFailed for the first that fails, ReplicaLost, or the signal's reason */
export async function passGate(
  machine: Machine,
  template: Template,
  identity: GuestIdentity,
  signal: AbortSignal,
): Promise<void> {
  // One after the other: a guest that is busy becoming somebody else draws late, and each look at it costs a picture.
  await proveIdentity(machine, template, identity, signal);
  await provePicture(machine, template, signal);
}

/**
 * Has a command run, the smallest. A clone's first one costs it some 0.2 s under software emulation, in pages and translations that every
 * later one finds: whoever has time for it spends it before a job waits. @throws as `passGate`
 */
export async function proveCommand(guest: Guest, signal: AbortSignal): Promise<void> {
  const ended = await answer(guest.exec({ argv: ['true'], timeoutMs: COMMAND_DEADLINE_MS }, signal));
  if (ended.timedOut) throw new GateFailed('command', `"true" did not end within ${COMMAND_DEADLINE_MS} ms`);
  if (ended.returncode !== 0) throw new GateFailed('command', `"true" ended with ${ended.returncode}`);
}

/**
 * Sets the guest's clock to the host's: one trip, quick enough for every claim, and a longer way only where that trip was slow.
 * @throws GateFailed when it is more than MAX_SKEW_MS off
 */
export async function setClock(machine: Machine, signal: AbortSignal): Promise<void> {
  const asked = Date.now();
  const guestMs = await clock(machine, asked, signal);
  // The guest set it at some moment of the trip: it is behind by no more than the trip took.
  const answered = Date.now();
  const right = guestMs >= asked && guestMs <= answered && answered - asked <= MAX_SKEW_MS;
  if (!right) await alignClock(machine, signal);
}

/**
 * Sets the clock and reads it apart from that, until it is right. On a host with no processor to spare a trip takes longer than the
 * skew allowed: each try sends the time at which it will probably arrive.
 */
async function alignClock(machine: Machine, signal: AbortSignal): Promise<void> {
  let leadMs = 0;
  let skewMs = Number.NaN;
  for (let tries = 0; tries < CLOCK_TRIES; tries += 1) {
    const asked = Date.now();
    await clock(machine, asked + leadMs, signal);
    leadMs = Math.min(MAX_SKEW_MS, (Date.now() - asked) / 2);
    skewMs = await readSkew(machine, signal);
    if (Math.abs(skewMs) <= MAX_SKEW_MS) return;
  }
  throw new GateFailed('clock', `${Math.round(skewMs)} ms off after it was set, more than ${MAX_SKEW_MS}`);
}

/** The guest read its clock at some moment of the trip: the skew is known up to the time that took. @returns the least it can be */
async function readSkew(machine: Machine, signal: AbortSignal): Promise<number> {
  const asked = Date.now();
  const guestMs = await clock(machine, null, signal);
  return Math.max(0, guestMs - Date.now()) + Math.min(0, guestMs - asked);
}

/** @param setMs sets it first, to milliseconds since 1970 @returns the guest's, in the same */
async function clock(machine: Machine, setMs: number | null, signal: AbortSignal): Promise<number> {
  const fields = setMs === null ? {} : { set_us: Math.round(setMs * 1_000) };
  const options = { deadlineMs: HELPER_DEADLINE_MS, signal };
  return (await answer(machine.helper.call('clock', fields, Clock, options))).time_us / 1_000;
}

async function proveIdentity(
  machine: Machine,
  template: Template,
  identity: GuestIdentity,
  signal: AbortSignal,
): Promise<void> {
  const seed = crypto.getRandomValues(new Uint8Array(32));
  const restored = await answer(
    machine.helper.call(
      'restore',
      {
        time_us: nowUs(),
        hostname: template.record.hostname,
        machine_id: identity.machineId,
        seed_b64: Buffer.from(seed).toString('base64'),
      },
      Restored,
      { deadlineMs: HELPER_DEADLINE_MS, signal },
    ),
  );
  if (restored.machine_id !== identity.machineId) {
    const holder = await identity.holderOf(restored.machine_id);
    const whose =
      restored.machine_id === template.record.machine_id ? "the template's" : holder ? `that of ${holder}` : 'unknown';
    throw new GateFailed(
      'identity',
      `machine id is ${restored.machine_id} (${whose}) although it was set to ${identity.machineId}`,
    );
  }
  if (restored.boot_id === template.record.boot_id) {
    throw new GateFailed('identity', `boot id ${restored.boot_id} is the template's`);
  }
  if (!restored.crng_reseeded) {
    throw new GateFailed(
      'entropy',
      'the kernel did not reseed its random numbers: no sign that it noticed being cloned (vmgenid)',
    );
  }
  // It has set its clock to a time that was old by then. Setting it again wakes all that wait for one: only if it has to be.
  if (Math.abs(await readSkew(machine, signal)) > MAX_SKEW_MS) await alignClock(machine, signal);
}

/** The picture is the template's, follows the pointer away and comes back. */
async function provePicture(machine: Machine, template: Template, signal: AbortSignal): Promise<void> {
  const volatile = template.image.manifest.volatile_regions;
  using before = await machine.screen.picture(signal);
  plausible(before, template);
  await machine.input.point(nearbySpot(machine.size), signal);
  using moved = await awaitPicture(machine, (now) => !same(now, before, volatile), PICTURE_DEADLINE_MS, signal);
  if (same(moved, before, volatile)) {
    throw new GateFailed('frozen', `the picture does not follow the pointer within ${PICTURE_DEADLINE_MS} ms`);
  }
  await machine.input.point(parkingSpot(machine.size), signal);
  using back = await awaitPicture(machine, (now) => same(now, template.golden, volatile), RETURN_DEADLINE_MS, signal);
  plausible(back, template);
}

/** @throws GateFailed for a picture that is black or only partly the template's */
function plausible(picture: Picture, template: Template): void {
  const share = difference(picture, template.golden, template.image.manifest.volatile_regions);
  if (share <= MAX_DIFFERENCE) return;
  if (isBlack(picture)) throw new GateFailed('black', 'the screen is black');
  throw new GateFailed('half-drawn', `${(share * 100).toFixed(1)} % of the picture differ from the template's`);
}

/** Takes pictures until one is as wanted or the time is over. @returns the last one */
async function awaitPicture(
  machine: Machine,
  wanted: (picture: Picture) => boolean,
  deadlineMs: number,
  signal: AbortSignal,
): Promise<ScreenPicture> {
  const end = performance.now() + deadlineMs;
  for (;;) {
    await sleep(POLL_MS, undefined, { signal });
    const picture = await machine.screen.picture(signal);
    if (wanted(picture) || performance.now() > end) return picture;
    picture[Symbol.dispose]();
  }
}

async function answer<T>(call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    const name = (error as Error).name;
    if (name !== 'GuestSilent' && name !== 'HelperError') throw error;
    throw new GateFailed('helper', (error as Error).message, { cause: error });
  }
}

function nowUs(): number {
  return Date.now() * 1_000;
}
