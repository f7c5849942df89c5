import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { JobContext, Policy, PolicyFunction, PolicyInput } from '../../functions/contract.ts';
import type { CommandResult, Guest, GuestCommand } from '../../functions/guest.ts';
import { builtinFunctions, type Functions, functionTable } from '../../functions/registry.ts';
import type { EpisodeParams } from '../../runner/job/episode.ts';
import type { Recorder, SetupLine } from '../../runner/job/recorder.ts';
import type { Diagnostics, NetworkEnd, Replica } from '../../runner/replica/contract.ts';
import {
  type EventKind,
  type InputAction,
  type ReplicaPhase,
  Step,
  TrajectoryJob,
  type TrajectoryJobInput,
} from '../../schemas/index.ts';

/**
 * A desktop of one text field and a pointer. What is typed is there to be read by `cat`; a picture is the state, written
 * out. The hooks make it fail where a test wants it to; everything that reached it is in `landed`.
 */
export class Desk implements Replica {
  readonly id = 'desk-1';
  readonly image = { name: 'debian-desktop', digest: 'd' };
  readonly accelerator = 'simulated' as const;
  readonly phase: ReplicaPhase = 'leased';
  readonly landed: InputAction[] = [];
  text = '';
  looks = 0;
  settles = 0;
  before: {
    act?: (action: InputAction, signal: AbortSignal) => Promise<void>;
    look?: (look: number, signal: AbortSignal) => Promise<void>;
    settle?: (signal: AbortSignal) => Promise<void>;
    exec?: (argv: readonly string[], signal: AbortSignal) => Promise<void>;
  } = {};
  readonly #lost = new AbortController();
  readonly lost = this.#lost.signal;

  readonly guest: Guest = {
    screen: { width: 640, height: 360 },
    account: { name: 'user', password: 'password' },
    exec: async ({ argv }: GuestCommand, signal: AbortSignal): Promise<CommandResult> => {
      await this.before.exec?.(argv, signal);
      const printed = argv[0] === 'cat' ? this.text : '';
      return {
        returncode: 0,
        stdout: Buffer.from(printed),
        stderr: Buffer.alloc(0),
        timedOut: false,
        truncated: false,
      };
    },
    spawn: async () => 1,
    readFile: async () => Buffer.from(this.text),
    writeFile: async (_path, data) => {
      this.text = Buffer.from(data).toString();
    },
  };

  async act(action: InputAction, signal: AbortSignal): Promise<void> {
    this.lost.throwIfAborted();
    await this.before.act?.(action, signal);
    this.landed.push(action);
    if (action.type === 'type') this.text += action.text;
  }

  async screenshot(signal: AbortSignal): Promise<Buffer> {
    this.lost.throwIfAborted();
    this.looks++;
    await this.before.look?.(this.looks, signal);
    return Buffer.from(`picture: ${this.text}`);
  }

  async settle(_limits: unknown, signal: AbortSignal): Promise<boolean> {
    this.settles++;
    await this.before.settle?.(signal);
    return true;
  }

  die(cause: Error): void {
    this.#lost.abort(cause);
  }

  /** The programs of its guest, once they have a network. */
  network: NetworkEnd | null = null;

  async openNetwork(network: NetworkEnd): Promise<void> {
    this.network = network;
  }

  async diagnostics(): Promise<Diagnostics> {
    return { serialLog: Buffer.alloc(0), lastPicture: null, cause: null };
  }
  async discard(): Promise<void> {}
  async [Symbol.asyncDispose](): Promise<void> {}
}

/** Keeps what an episode records, each line checked against the wire's schema. */
class Notebook implements Recorder {
  readonly steps: Step[] = [];
  readonly setups: SetupLine[] = [];
  readonly events: { kind: EventKind; data: Record<string, unknown> }[] = [];
  readonly pictures: string[] = [];

  async screenshot(step: number, png: Buffer) {
    this.pictures[step] = String(png);
    const sha256 = createHash('sha256').update(png).digest('hex');
    return { key: `step-${step}.png`, bytes: png.length, sha256, width: 640, height: 360 };
  }
  async step(line: Step): Promise<void> {
    this.steps.push(Step.parse(line));
  }
  async setup(line: SetupLine): Promise<void> {
    this.setups.push(line);
  }
  event(kind: EventKind, data: Record<string, unknown>): void {
    this.events.push({ kind, data });
  }
}

/** A policy made of a function, for the policies no job can write down: those that hang, throw or answer nonsense. */
export function policyOf(act: (input: PolicyInput, signal: AbortSignal) => unknown): Functions {
  const policy: PolicyFunction = {
    name: 'tested',
    version: '3',
    summary: 'of a test',
    params: z.unknown(),
    create: () => ({ act: async (input, signal) => act(input, signal) }) as Policy,
  };
  return functionTable({
    policies: [policy],
    setups: [...builtinFunctions.setups.values()],
    getters: [...builtinFunctions.getters.values()],
    metrics: [...builtinFunctions.metrics.values()],
  });
}

export function scripted(...actions: unknown[]): TrajectoryJobInput['policy'] {
  return { name: 'scripted', params: { actions } as never };
}

export const typed = (text: string): TrajectoryJobInput['evaluator'] => ({
  func: 'exact_match',
  result: { type: 'vm_command_line', command: 'cat text' },
  expected: { type: 'rule', rules: { expected: text } },
});

/** Everything `playEpisode` needs, with quick limits. */
export function scene(change: Partial<TrajectoryJobInput> = {}, params: Partial<EpisodeParams> = {}) {
  const job = TrajectoryJob.parse({
    schema: 'gymbus.job.v1',
    batch_id: 'b1',
    job_id: 'j1',
    image: 'debian-desktop',
    instruction: 'Write hello.',
    policy: params.functions ? { name: 'tested' } : scripted({ type: 'done' }),
    ...change,
  });
  const desk = new Desk();
  const notebook = new Notebook();
  const context: JobContext = {
    job,
    screen: desk.guest.screen,
    bucket: 'gymbus',
    downloads: { maxBytes: 1e6, allowPrivate: false },
    readInput: async () => Buffer.from('input'),
  };
  const stop = new AbortController();
  const look = { settle: { minMs: 0, maxMs: 20 }, pictureMs: 300, tries: 3 };
  const episode: EpisodeParams = {
    ...{ job, attempt: '1-abcdefgh', replica: desk, context, recorder: notebook, look, signal: stop.signal },
    ...params,
  };
  return { desk, notebook, stop, episode };
}

/** Never ends by itself, and takes no notice of being told to. */
export const hang = (): Promise<never> => new Promise(() => {});

/** Ends when told to, as a well-behaved call does. */
export async function untilTold(signal: AbortSignal): Promise<never> {
  await sleep(60_000, undefined, { signal });
  throw new Error('never told');
}
