import { type Logger, pino, stdTimeFunctions } from 'pino';
import type { DownloadSettings, JobContext } from '../../functions/contract.ts';
import type { Functions } from '../../functions/registry.ts';
import type { EventKind, HostUse, JobAddress, TrajectoryJob } from '../../schemas/index.ts';
import type { Replica } from '../replica/contract.ts';
import { Recording, type RecordingPlace } from '../storage/recorder.ts';
import { AttemptNetwork } from './attempt-network.ts';
import { classify } from './classify.ts';
import { type EpisodeEnd, playEpisode } from './episode.ts';
import type { AttemptFailed } from './failure.ts';
import { JobInputs } from './job-inputs.ts';
import { joinSignals } from './limit.ts';
import type { LookSettings } from './observe.ts';
import { type EpisodeProgress, freshProgress } from './progress.ts';
import type { Recorder } from './recorder.ts';

export interface AttemptParams {
  job: TrajectoryJob;
  address: JobAddress;
  /** The job's message as received. */
  body: Uint8Array;
  attempt: string;
  /** Claimed; discarded here, whatever happens. */
  replica: Replica;
  place: RecordingPlace;
  functions: Functions;
  look: LookSettings;
  downloads: DownloadSettings;
  emit(kind: EventKind, data: Record<string, string | number | boolean | null>): void;
  log: Logger;
  /** Ends playing. */
  signal: AbortSignal;
  /** Ends uploading: outlives `signal`, for a cancelled attempt is recorded too. */
  persist: AbortSignal;
}

/** An attempt that was played, well or not; everything of it is on local disk and on its way to S3. */
export interface PlayedAttempt extends AsyncDisposable {
  recording: Recording;
  progress: EpisodeProgress;
  end: EpisodeEnd | null;
  failure: AttemptFailed | null;
  /** What the guest reached; null where the job asked for no hosts. */
  network: HostUse[] | null;
}

/** Serial logs and last pictures of a sick machine are waited for no longer than this. */
const DIAGNOSTICS_MS = 8_000;

/**
 * Plays one attempt on a replica of its own and records it. What goes wrong comes back in `failure`, classed.
 * @throws StorageFull when not even the recording could begin
 */
export async function playAttempt(params: AttemptParams): Promise<PlayedAttempt> {
  const { job, address, replica, place } = params;
  let recording: Recording;
  try {
    const target = { batch: address.batch, job: address.job, attempt: params.attempt };
    recording = await Recording.begin(place, target, params.body, params.persist);
  } catch (error) {
    discard(replica, params.log);
    throw error;
  }
  const log = pino({ level: 'debug', base: null, timestamp: stdTimeFunctions.isoTime }, recording.log);
  const progress = freshProgress();
  const inputs = new JobInputs(place.store, address.batch);
  const context: JobContext = {
    job,
    screen: replica.guest.screen,
    bucket: place.store.bucket,
    downloads: params.downloads,
    readInput: (key, { maxBytes }, signal) => inputs.read(key, maxBytes, signal),
  };
  const recorder: Recorder = {
    screenshot: (step, png) => recording.screenshot(step, png),
    step: (line) => recording.step(line),
    setup: (line) => recording.setup(line),
    event: params.emit,
  };
  const played: PlayedAttempt = {
    recording,
    progress,
    end: null,
    failure: null,
    network: null,
    [Symbol.asyncDispose]: () => recording[Symbol.asyncDispose](),
  };
  const { allowPrivate } = params.downloads;
  using network = job.network ? new AttemptNetwork(replica, { ...job.network, allowPrivate }, log) : null;
  using signals = joinSignals(params.signal, recording.failed);
  log.info({ replica: replica.id, image: replica.image, accelerator: replica.accelerator }, 'attempt started');
  try {
    played.end = await playEpisode({
      ...{ job, attempt: params.attempt, replica, context, recorder, progress },
      look: params.look,
      functions: params.functions,
      ...(network ? { prepare: (inner) => network.open(inner) } : {}),
      signal: signals.signal,
      onPhase: (phase) => log.info({ phase }, 'phase'),
      onReadRetry: (error) => log.warn({ err: error }, 'read of the guest failed; trying again'),
    });
    log.info({ ...played.end }, 'episode ended');
  } catch (error) {
    played.failure = classify(inputs.awaited(error));
    log.error({ err: error, class: played.failure.class }, 'attempt failed');
    // Stopped or cancelled: nothing is wrong with the machine, and the job is to go back at once.
    if (!params.signal.aborted) await keepDiagnostics(recording, replica, log);
  }
  if (network) played.network = network.use();
  discard(replica, params.log);
  return played;
}

/** Off the critical path: the pool makes room again while what was recorded goes up. */
export function discard(replica: Replica, log: Logger): void {
  replica.discard().catch((error: unknown) => log.error({ err: error, replica: replica.id }, 'replica not discarded'));
}

async function keepDiagnostics(recording: Recording, replica: Replica, log: Logger): Promise<void> {
  try {
    const found = await Promise.race([
      replica.diagnostics(),
      new Promise<null>((resolve) => setTimeout(resolve, DIAGNOSTICS_MS, null).unref()),
    ]);
    if (found === null) return log.warn('the replica gave no diagnostics in time');
    log.info({ cause: found.cause }, 'diagnostics');
    await recording.diagnostics(found);
  } catch (error) {
    log.warn({ err: error }, 'diagnostics could not be kept');
  }
}
