import type { z } from 'zod';
import type { Action, TrajectoryJob } from '../schemas/index.ts';
import type { ByteBudget } from './evaluation/budget.ts';
import type { Guest, ScreenSize } from './guest.ts';

/** What a function may know of its job, and how it reaches the world. */
export interface JobContext {
  readonly job: TrajectoryJob;
  readonly screen: ScreenSize;
  /** The bucket of `readInput`: the only one an `s3://` URL of a job may name. */
  readonly bucket: string;
  readonly downloads: DownloadSettings;
  /**
   * Reads a file under `inputs/<batch>/`, the only objects a job may name.
   * @param key whole, and already checked to lie in that folder
   * @throws the storage's own error; one over `maxBytes` is refused before it is read
   */
  readInput(key: string, limits: { maxBytes: number }, signal: AbortSignal): Promise<Buffer>;
}

/** What this host lets a job's `download` do; the second goes for the hosts its guest may reach, too. */
export interface DownloadSettings {
  /** Of one file; it is held in memory, once, on its way into the guest, and a set-up has one at a time. */
  maxBytes: number;
  /** Whether loopback, private, link-local and this host's own addresses may be reached. False wherever jobs come from others. */
  allowPrivate: boolean;
}

/** One look at the desktop, as the policy gets it. */
export interface PolicyInput {
  /** 1 for the first answer; the picture is that of step - 1. */
  step: number;
  instruction: string;
  screen: ScreenSize;
  /** PNG, or null where the job asked for none. */
  screenshot: Buffer | null;
  /** Actions of the previous step that were not sent, with the reason. */
  rejected: readonly RejectedAction[];
}

/** An action that was not sent to the guest. */
export type RejectedAction = {
  /** Place in the answer, from 0. */
  index: number;
  message: string;
};

export interface PolicyAnswer {
  /** At least one; what follows a `done` or `fail` is ignored. */
  actions: Action[];
  thoughts?: string | undefined;
}

/** Plays one episode; made anew for each. */
export interface Policy {
  /** @returns one or more actions, or null when it has nothing more to do (the episode then ends as if `done`) */
  act(input: PolicyInput, signal: AbortSignal): Promise<PolicyAnswer | null>;
}

export interface PolicyFunction<Params = unknown> {
  name: string;
  version: string;
  /** One line for people. */
  summary: string;
  params: z.ZodType<Params>;
  create(params: Params, context: JobContext): Policy;
}

/** What one set-up step did; a non-zero exit is recorded here and is no failure by itself. */
export interface SetupRecord {
  /** Of the last run, where `until` repeats the command. */
  returncode?: number;
  /** Text as the guest printed it, cut at 16 Ki characters. */
  stdout?: string;
  stderr?: string;
  /** Cache-file names the step gave its output. */
  stdout_file?: string;
  stderr_file?: string;
  runs?: number;
  pid?: number;
  files?: { path: string; bytes: number }[];
}

export interface SetupFunction<Params = unknown> {
  type: string;
  summary: string;
  parameters: z.ZodType<Params>;
  /** What only the whole job can tell to be wrong, e.g. a key outside its inputs. @returns one line a problem */
  check?(parameters: Params, job: TrajectoryJob): string[];
  /** @throws SetupError, or whatever the guest throws: all fail the set-up, never as a score */
  run(parameters: Params, guest: Guest, context: JobContext, signal: AbortSignal): Promise<SetupRecord>;
}

export interface GetterFunction<Params = unknown> {
  type: string;
  summary: string;
  /** Of every field but `type`. */
  parameters: z.ZodType<Params>;
  /** @throws GuestFileError "no such file" is an answer (a valid 0 under `and`); anything else fails the evaluation */
  get(parameters: Params, guest: Guest, context: EvaluationContext, signal: AbortSignal): Promise<unknown>;
}

/** What a getter may know beside its job. */
export interface EvaluationContext extends JobContext {
  /** What all getters of one evaluation may take from the guest: each takes from what is left. */
  readonly budget: ByteBudget;
}

export interface MetricFunction<Expected = unknown, Options = unknown> {
  name: string;
  summary: string;
  /** What it compares with; null: it looks at the result alone, and an `expected` is an error of the job. */
  expected: z.ZodType<Expected> | null;
  options: z.ZodType<Options>;
  /**
   * The job says what is compared, and how much of it: what takes longer than a moment gives way to the runner's other work,
   * and heeds the signal. Nothing else can end it: it runs in the runner's own thread.
   * @param result what the getter got; null where the guest has no such thing, which scores 0
   * @returns 0 to 1
   * @throws EvaluatorError when the result is not of the kind it compares; the signal's reason
   */
  score(result: unknown, expected: Expected, options: Options, signal: AbortSignal): number | Promise<number>;
}

/** A set-up step that went wrong in a way the job can see: a time-out, an unexpected exit code, a bad download. */
export class SetupError extends Error {
  override readonly name = 'SetupError';
  /** What was seen before it went wrong. */
  readonly record: SetupRecord;
  constructor(message: string, options: { cause?: unknown; record?: SetupRecord } = {}) {
    super(message, 'cause' in options ? { cause: options.cause } : {});
    this.record = options.record ?? {};
  }
}

/** The evaluator could not answer: never a score. */
export class EvaluatorError extends Error {
  override readonly name = 'EvaluatorError';
}
