import { open } from 'node:fs/promises';
import type { Engine } from '../../runner/replica/engine.ts';
import { VirtualReplica } from '../../runner/replica/replica.ts';
import type { Template } from '../../runner/replica/template.ts';

/** Made hot at once. */
const HANDS = 2;
const STEPS = 3;
const STEP_MS = 120_000;
const never = new AbortController().signal;

export interface Neighbourhood {
  /** Replicas that run at once. */
  replicas: number;
  /** Of these, so many have a state manager that is sick. */
  sick: number;
}

/** How the others fared. */
export interface Fared {
  succeeded: number;
  /** Milliseconds of each of their steps, ascending. */
  stepMs: number[];
  /** How often somebody who heard of a sick one threw until they were done. */
  threw: number;
}

/** A replica whose state manager does something that it should not. */
type Sickness = (engine: Engine, template: Template) => Sick;
interface Sick {
  replica: VirtualReplica;
  /** What it does while the others play; ends with the signal, or never. */
  rage(until: AbortSignal): Promise<unknown>;
  release?(): Promise<unknown>;
  threw?(): number;
}

/** Whoever has it, as a pool has it: told of its phases and of its end. It throws at each of them. */
function heardByOneWhoThrows(engine: Engine, template: Template): { replica: VirtualReplica; threw(): number } {
  let count = 0;
  const hear = (): void => {
    count += 1;
    throw new Error('a listener that throws');
  };
  const replica = new VirtualReplica(engine, template, hear);
  replica.onceDiscarded(hear);
  return { replica, threw: () => count };
}

const SICKNESSES: readonly Sickness[] = [
  // Throws when QEMU is killed: the kernel tells of it.
  (engine, template) => {
    const heard = heardByOneWhoThrows(engine, template);
    return { ...heard, rage: async () => process.kill(heard.replica.machine.pid, 'SIGKILL') };
  },
  // Throws when a timer of the runner condemns it, and when it is discarded.
  (engine, template) => {
    const heard = heardByOneWhoThrows(engine, template);
    const { replica } = heard;
    const rage = async (): Promise<unknown> =>
      setTimeout(() => {
        replica.condemn('sick');
        void replica.discard();
      }, 50);
    return { ...heard, rage };
  },
  // Blocks: its machine stands still, and whatever is asked of it waits.
  (engine, template) => {
    const replica = new VirtualReplica(engine, template);
    return {
      replica,
      rage: async (until) => {
        process.kill(replica.machine.pid, 'SIGSTOP');
        await Promise.allSettled([
          replica.screenshot(until),
          replica.guest.exec({ argv: ['true'], timeoutMs: 1e6 }, until),
        ]);
      },
    };
  },
  // Leaks: keeps pictures, open files and timers, and never discards itself.
  (engine, template) => {
    const replica = new VirtualReplica(engine, template);
    const kept: { close(): Promise<void> }[] = [];
    const pictures: unknown[] = [];
    return {
      replica,
      rage: async (until) => {
        while (!until.aborted) {
          pictures.push(await replica.machine.screen.picture(until).catch(() => null));
          for (let n = 0; n < 10; n += 1) kept.push(await open('/dev/null'));
          setTimeout(() => pictures.length, 600_000).unref();
          await new Promise((resolve) => setTimeout(resolve, 500));
        }
      },
      release: () => Promise.all(kept.map((file) => file.close())),
    };
  },
];

/** Replicas that all run at once, each but the sick ones taking some steps. */
export async function fare(engine: Engine, template: Template, { replicas, sick }: Neighbourhood): Promise<Fared> {
  // Each is made at its turn: its time to be cloned runs from then on.
  const sickOnes: Sick[] = [];
  const sound: VirtualReplica[] = [];
  const makers = Array.from({ length: replicas }, (_, n) => (): VirtualReplica => {
    if (n >= sick) {
      const replica = new VirtualReplica(engine, template);
      sound.push(replica);
      return replica;
    }
    const made = (SICKNESSES[n % SICKNESSES.length] as Sickness)(engine, template);
    sickOnes.push(made);
    return made.replica;
  });
  const over = new AbortController();
  try {
    await Promise.all(
      Array.from({ length: HANDS }, async () => {
        for (let make = makers.shift(); make; make = makers.shift()) {
          const replica = make();
          await replica.prepare();
          await replica.lease(never);
        }
      }),
    );
    const raging = sickOnes.map(({ rage }) => rage(over.signal));
    const stepMs: number[] = [];
    const ends = await Promise.allSettled(sound.map((replica) => takeSteps(replica, stepMs)));
    over.abort();
    await Promise.allSettled(raging);
    return {
      succeeded: ends.filter(({ status }) => status === 'fulfilled').length,
      stepMs: stepMs.sort((a, b) => a - b),
      threw: sickOnes.reduce((sum, { threw }) => sum + (threw?.() ?? 0), 0),
    };
  } finally {
    over.abort();
    const all = [...sickOnes.map(({ replica }) => replica), ...sound];
    await Promise.allSettled(all.map((replica) => replica.discard()));
    for (const { release } of sickOnes) await release?.();
  }
}

async function takeSteps(replica: VirtualReplica, stepMs: number[]): Promise<void> {
  for (let n = 0; n < STEPS; n += 1) {
    const signal = AbortSignal.timeout(STEP_MS);
    const startedAt = performance.now();
    await replica.act({ type: 'move', x: 100 + n * 50, y: 200 }, signal);
    await replica.screenshot(signal);
    stepMs.push(performance.now() - startedAt);
  }
}
