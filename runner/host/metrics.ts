import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { RunnerStatus } from '../../schemas/index.ts';
import { mergedBytes } from '../replica/ksm.ts';
import type { PoolObserver } from '../replica/pool.ts';

/** From a hot one's 10 ms to a claim that took three tries on a starved host. */
const BUCKETS_S = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const PHASES = ['cloning', 'restoring', 'frozen', 'gating', 'hot', 'leased', 'failed'] as const;

/** How one delivered job ended. */
export interface JobEnd {
  image: string;
  end: string;
  /** Class of the failure, where there was one. */
  class: string | null;
  /** Of the outcome, where one was committed. */
  status: string | null;
}

/**
 * What Prometheus reads at `/metrics`: counters and histograms of what happened here since the start, and the heartbeat's figures as
 * gauges. Names begin with `gymbus_`; units are seconds and bytes.
 */
export class Metrics implements PoolObserver {
  readonly #registry = new Registry();
  readonly #clones = this.#histogram('gymbus_clone_duration_seconds', 'From nothing to a frozen replica', ['image']);
  readonly #claims = this.#histogram('gymbus_claim_duration_seconds', 'From a claim to a replica that acts', [
    ...['image', 'result'],
  ]);
  readonly #deliveries = this.#counter('gymbus_deliveries_total', 'Jobs delivered to this runner, by how that ended', [
    ...['image', 'end', 'class'],
  ]);
  readonly #outcomes = this.#counter('gymbus_outcomes_total', 'Outcomes that stand, by status', ['image', 'status']);
  readonly #builds = this.#counter('gymbus_template_builds_total', 'Templates made', ['image']);

  /** @param status the heartbeat, read at each scrape */
  constructor(status: () => RunnerStatus) {
    this.#gauges(status);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  text(): Promise<string> {
    return this.#registry.metrics();
  }

  cloned(image: string, milliseconds: number): void {
    this.#clones.observe({ image }, milliseconds / 1_000);
  }

  claimed(image: string, milliseconds: number, ok: boolean): void {
    this.#claims.observe({ image, result: ok ? 'ok' : 'failed' }, milliseconds / 1_000);
  }

  built(image: string): void {
    this.#builds.inc({ image });
  }

  ended({ image, end, class: failure, status }: JobEnd): void {
    this.#deliveries.inc({ image, end, class: failure ?? 'none' });
    if (status !== null) this.#outcomes.inc({ image, status });
  }

  #gauges(status: () => RunnerStatus): void {
    const gauge = (name: string, help: string, labelNames: string[], collect: (set: SetGauge) => void): void => {
      new Gauge({
        ...{ name, help, labelNames, registers: [this.#registry] },
        collect() {
          this.reset();
          collect((labels, value) => this.set(labels, value));
        },
      });
    };
    gauge('gymbus_runner_info', 'What this runner is', ['runner', 'version', 'accelerator', 'state'], (set) => {
      const { runner, version, accelerator, state } = status();
      set({ runner, version, accelerator: accelerator ?? 'unknown', state }, 1);
    });
    gauge('gymbus_replicas', 'Replicas there are', ['image', 'phase'], (set) => {
      for (const { image, phases } of status().warm ?? [])
        for (const phase of PHASES) set({ image, phase }, phases[phase] ?? 0);
    });
    gauge('gymbus_replicas_wanted', 'Warm replicas to be kept', ['image', 'kind'], (set) => {
      for (const { image, hot, frozen } of status().warm ?? []) {
        set({ image, kind: 'hot' }, hot);
        set({ image, kind: 'frozen' }, frozen);
      }
    });
    gauge('gymbus_jobs_waiting', 'Jobs in the queue that nobody has begun, as far as is known', ['image'], (set) => {
      for (const { image, waiting } of status().warm ?? []) set({ image }, waiting);
    });
    gauge('gymbus_capacity_replicas', 'Replicas of a kind that this host can hold', ['kind', 'bound'], (set) => {
      for (const [kind, { count, bound }] of Object.entries(status().capacity.kinds ?? {})) set({ kind, bound }, count);
    });
    gauge('gymbus_pull_held', '1 while no jobs are pulled, by the first word of the reason', ['reason'], (set) => {
      const { state, reason } = status();
      if (state !== 'running') set({ reason: /^(memory|disk|cpu|spool|S3):/.exec(reason ?? '')?.[1] ?? state }, 1);
    });
    const loads: [string, string, keyof RunnerStatus['load']][] = [
      ['gymbus_spool_bytes', 'Recorded here and not yet in S3', 'spool_bytes'],
      ['gymbus_memory_available_bytes', 'Memory to be had without swapping', 'memory_available_bytes'],
      ['gymbus_disk_available_bytes', 'Disk to be had in and under the storage area', 'disk_available_bytes'],
    ];
    for (const [name, help, field] of loads) gauge(name, help, [], (set) => set({}, Number(status().load[field])));
    gauge('gymbus_memory_pressure_ratio', 'Part of the last 10 s in which tasks waited for memory', ['kind'], (set) => {
      const pressure = status().load.memory_pressure;
      if (!pressure) return;
      set({ kind: 'some' }, pressure.some / 100);
      set({ kind: 'full' }, pressure.full / 100);
    });
    gauge('gymbus_ksm_saved_bytes', 'Memory that merging saves on this host', [], (set) => {
      const bytes = mergedBytes();
      if (bytes !== null) set({}, bytes);
    });
  }

  #histogram(name: string, help: string, labelNames: string[]): Histogram {
    return new Histogram({ name, help, labelNames, buckets: BUCKETS_S, registers: [this.#registry] });
  }

  #counter(name: string, help: string, labelNames: string[]): Counter {
    return new Counter({ name, help, labelNames, registers: [this.#registry] });
  }
}

type SetGauge = (labels: Record<string, string>, value: number) => void;
