import os from 'node:os';
import type { RunnerStatus } from '../../schemas/index.ts';
import type { ReplicaPool } from '../replica/contract.ts';

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
  #pool: { pool: ReplicaPool; capacity: RunnerStatus['capacity'] } | undefined;
  readonly #holds = new Map<string, string | null>();

  constructor(sources: StatusSources) {
    this.#sources = sources;
  }

  /** @param reason what it is doing before it can pull */
  starting(reason: string): void {
    this.#reason = reason;
  }

  running(pool: ReplicaPool, capacity: RunnerStatus['capacity']): void {
    this.#pool = { pool, capacity };
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
    const pool = this.#pool?.pool;
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
      capacity: this.#pool?.capacity ?? { acting: 0, ready: 0, bound: 'starting' },
      replicas: pool?.phases() ?? {},
      load: {
        load1: os.loadavg()[0] ?? 0,
        memory_available_bytes: os.freemem(),
        disk_available_bytes: this.#diskFreeBytes,
        spool_bytes: this.#sources.spoolBytes(),
      },
      started_at: this.#startedAt.toISOString(),
      at: new Date().toISOString(),
    };
  }
}
