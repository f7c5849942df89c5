import os from 'node:os';
import type { RunnerStatus } from '../../schemas/index.ts';
import type { Capacity } from '../replica/capacity.ts';
import type { VirtualPool } from '../replica/pool.ts';

export interface StatusSources {
  runner: string;
  version: string;
  functions: string[];
  /** What it serves, or will once it is ready: a job for one of them waits for nobody else. */
  images: RunnerStatus['images'];
  spoolBytes(): number;
}

/** What this runner tells of itself. Written by the host alone; read by the heartbeat and `/healthz`. */
export class StatusBoard {
  readonly #sources: StatusSources;
  readonly #startedAt = new Date();
  #state: RunnerStatus['state'] = 'starting';
  #reason: string | null = 'starting';
  #diskFreeBytes = 0;
  #pool: VirtualPool | undefined;
  readonly #holds = new Map<string, string | null>();

  constructor(sources: StatusSources) {
    this.#sources = sources;
  }

  /** @param reason what it is doing before it can pull */
  starting(reason: string): void {
    this.#reason = reason;
  }

  running(pool: VirtualPool): void {
    this.#pool = pool;
    this.#state = 'running';
    this.#reason = null;
  }

  /** @returns whether that is news */
  hold(imageName: string, reason: string | null, diskFreeBytes: number): boolean {
    const news = (this.#holds.get(imageName) ?? null) !== reason;
    this.#holds.set(imageName, reason);
    this.#diskFreeBytes = diskFreeBytes;
    if (this.#state === 'running' || this.#state === 'holding') {
      this.#reason = [...this.#holds.values()].find((held) => held !== null) ?? null;
      this.#state = this.#reason === null ? 'running' : 'holding';
    }
    return news;
  }

  draining(): void {
    this.#state = 'draining';
    this.#reason = 'told to stop';
  }

  read(): RunnerStatus {
    const pool = this.#pool;
    return {
      schema: 'gymbus.runner.v1',
      runner: this.#sources.runner,
      version: this.#sources.version,
      pid: process.pid,
      state: this.#state,
      reason: this.#reason,
      accelerator: pool?.accelerator ?? null,
      images: this.#sources.images,
      functions: this.#sources.functions,
      capacity: pool ? capacityOf(pool.capacity) : { acting: 0, ready: 0, bound: 'starting' },
      replicas: pool?.phases() ?? {},
      warm: pool?.states().map(({ target, ...state }) => ({ ...state, ...target })) ?? [],
      load: {
        load1: os.loadavg()[0] ?? 0,
        memory_available_bytes: os.freemem(),
        disk_available_bytes: this.#diskFreeBytes,
        spool_bytes: this.#sources.spoolBytes(),
        memory_pressure: pool?.host.pressure ? { ...pool.host.pressure } : null,
      },
      started_at: this.#startedAt.toISOString(),
      at: new Date().toISOString(),
    };
  }
}

function capacityOf({ acting, ready, frozen, bound, kinds }: Capacity): RunnerStatus['capacity'] {
  return {
    ...{ acting, ready, frozen, bound },
    kinds: { frozen: { ...kinds.frozen }, hot: { ...kinds.hot }, acting: { ...kinds.acting } },
  };
}
