import type { z } from 'zod';
import type { Action, TrajectoryJob } from '../schemas/index.ts';
import type { Guest, ScreenSize } from './guest.ts';

/** What a function may know of its job, and how it reaches the world. */
export interface JobContext {
  readonly job: TrajectoryJob;
  readonly screen: ScreenSize;
  /** Reads a file under `inputs/<batch>/`, the only objects a job may name. @param key relative to that folder, or whole */
  readInput(key: string, signal: AbortSignal): Promise<Buffer>;
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
  rejected: readonly { index: number; message: string }[];
}

export interface PolicyAnswer {
  actions: Action[];
  thoughts?: string;
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

/** What one set-up step did, kept with the attempt; a non-zero exit is recorded here and is no failure by itself. */
export interface SetupRecord {
  type: string;
  returncode?: number;
  stdout?: string;
  stderr?: string;
  message?: string;
}

export interface SetupFunction<Params = unknown> {
  type: string;
  summary: string;
  parameters: z.ZodType<Params>;
  /** @throws SetupError, or whatever the guest throws: all fail the set-up, never as a score */
  run(parameters: Params, guest: Guest, context: JobContext, signal: AbortSignal): Promise<SetupRecord>;
}

export interface GetterFunction<Params = unknown> {
  type: string;
  parameters: z.ZodType<Params>;
  /** @throws GuestFileError "no such file" is an answer (a valid 0 under `and`); anything else fails the evaluation */
  get(parameters: Params, guest: Guest, context: JobContext, signal: AbortSignal): Promise<unknown>;
}

export interface MetricFunction {
  name: string;
  /** Whether it compares with an expected value. */
  options: z.ZodType;
  /** @returns 0 to 1 @throws EvaluatorError when its inputs are not of the kind it compares */
  score(result: unknown, expected: unknown, options: unknown): number;
}

/** A set-up step that went wrong in a way the job can see: a time-out, an unexpected exit code, a bad download. */
export class SetupError extends Error {
  override readonly name = 'SetupError';
}

/** The evaluator could not answer: never a score. */
export class EvaluatorError extends Error {
  override readonly name = 'EvaluatorError';
}
