import type { HostSpec } from '../host/host-spec.ts';
import type { HostRoom, Kind } from '../replica/capacity.ts';
import type { Forecast, ForecastBasis } from '../replica/forecast.ts';
import type { KnownImage } from '../replica/host-forecast.ts';
import type { LedgerEntry } from '../replica/ledger.ts';
import { type Estimate, FIGURES, type Figure } from '../replica/profile.ts';
import { table } from './table.ts';

export interface ReportSources {
  /** Null for this host. */
  spec: HostSpec | null;
  room: HostRoom;
  usdPerDay: number | null;
  basis: ForecastBasis;
  images: readonly KnownImage[];
  plan: Forecast;
  /** Live pools of this host; null where another is planned. */
  runners: readonly LedgerEntry[] | null;
}

const KINDS: readonly Kind[] = ['frozen', 'hot', 'acting'];
const ofKinds = <T>(of: (kind: Kind) => T): Record<Kind, T> => ({
  ...{ frozen: of('frozen'), hot: of('hot'), acting: of('acting') },
});

export type CapacityReport = ReturnType<typeof capacityReport>;

/** What `gymbus capacity --json` prints. Bytes, US dollars, shares in per cent. */
export function capacityReport({ spec, room, usdPerDay, basis, images, plan, runners }: ReportSources) {
  const { capacity, unshared } = plan;
  const planned = spec?.accelerator ?? null;
  const measured = basis.accelerator;
  return {
    schema: 'gymbus.capacity.v1' as const,
    host: {
      planned: spec !== null,
      ...{ cores: room.cpus, memory_bytes: room.memoryBytes, disk_bytes: room.diskBytes, numa: room.numaNodes },
      ...{ accelerator: planned ?? (spec ? null : measured), usd_per_day: usdPerDay },
    },
    measured_under: measured,
    /** What keeps the figures from being this host's own. */
    note: noteOf(measured, spec, Object.values(basis.estimates)),
    replicas: ofKinds((kind) => capacity.kinds[kind].count),
    bound: ofKinds((kind) => capacity.kinds[kind].bound),
    now: runners && runners.length > 0 ? nowOf(runners) : null,
    runners: runners?.map(({ runner, pid, frozen, hot, acting, waitingSince }) => {
      return { runner, pid, frozen, hot, acting, waits: waitingSince !== null };
    }),
    usd_per_replica_day: plan.usdPerReplicaDay,
    steps_per_second: Math.round(plan.stepsPerSecond * 10) / 10,
    unshared: {
      ...{ replicas: unshared.replicas, bound: unshared.bound, hosts: unshared.hosts },
      usd_per_replica_day: unshared.usdPerReplicaDay,
    },
    saving_percent: Math.round(plan.savingPercent * 10) / 10,
    images: images.map(({ image, digest, template }) => ({ image, digest, template })),
    profile: basis.estimates,
  };
}

function nowOf(runners: readonly LedgerEntry[]): Record<Kind, number> {
  return ofKinds((kind) => runners.reduce((sum, entry) => sum + entry[kind], 0));
}

function noteOf(measured: string, spec: HostSpec | null, estimates: readonly Estimate[]): string | null {
  const differs = spec && spec.accelerator !== measured;
  const assumed = estimates.some((estimate) => estimate.assumed && estimate.value !== null);
  const notes = [
    ...(differs ? [`measured under ${measured}; ${spec.accelerator ?? 'what accelerates that host'} is another`] : []),
    ...(assumed ? ['some figures are assumed: replicas that run here will tell'] : []),
  ];
  return notes.length === 0 ? null : notes.join('; ');
}

const gib = (bytes: number): string => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
const usd = (amount: number | null): string => (amount === null ? 'unknown price' : `$${amount.toPrecision(3)}`);

/** The same for people. */
export function reportText(report: CapacityReport): string {
  const { host, unshared } = report;
  const nodes = `${host.numa} memory node${host.numa === 1 ? '' : 's'}`;
  const size = `${host.cores} cores, ${gib(host.memory_bytes)} of memory, ${gib(host.disk_bytes)} of disk, ${nodes}`;
  const replicas = KINDS.map((kind) => ({
    ...{ replicas: kind, 'at most': report.replicas[kind], 'bound by': report.bound[kind] },
    ...(host.planned ? {} : { now: report.now?.[kind] ?? null }),
  }));
  const figures = (Object.keys(FIGURES) as Figure[]).map((figure) => {
    const { value, samples, assumed } = report.profile[figure];
    return { figure, value: value === null ? null : shown(figure, value), samples, from: source(value, assumed) };
  });
  const runners = (report.runners ?? []).map(
    ({ runner, pid, frozen, hot, acting, waits }) =>
      `runner ${runner} (pid ${pid}): ${frozen} frozen, ${hot} hot, ${acting} acting${waits ? ', waits for a place' : ''}`,
  );
  return [
    `${host.planned ? 'planned host' : 'this host'}: ${size}; ${host.accelerator ?? 'accelerator not given'}`,
    `${isMeasured(report) ? 'measured' : 'assumed, for nothing has played here yet,'} under ${report.measured_under}: ${report.images.map(({ image }) => image).join(', ')}`,
    ...(report.note ? [`note: ${report.note}`] : []),
    '',
    table(replicas),
    ...(runners.length > 0 ? ['', ...runners] : []),
    '',
    `an acting replica a day: ${usd(report.usd_per_replica_day)}; all together up to ${report.steps_per_second} steps a second`,
    `one replica a processor group (K=1), full disks: ${unshared.replicas} a host, bound by ${unshared.bound}, ${unshared.hosts.toFixed(1)} hosts for as many; a replica a day: ${usd(unshared.usd_per_replica_day)}`,
    `saved by sharing: ${report.saving_percent} % (the OSGym paper: 90 %)`,
    '',
    table(figures),
  ].join('\n');
}

/** Whether any of its figures is of replicas that ran. */
const isMeasured = ({ profile }: CapacityReport): boolean =>
  Object.values(profile).some(({ value, assumed }) => value !== null && !assumed);

function source(value: number | null, assumed: boolean): string {
  if (value === null) return 'not measured';
  return assumed ? 'assumed' : 'measured';
}

function shown(figure: Figure, value: number): string {
  if (figure === 'memory_bandwidth') return `${(value / 1e6).toFixed(0)} MB/s`;
  if (figure.endsWith('_bytes')) return `${(value / 2 ** 20).toFixed(1)} MiB`;
  return figure.endsWith('_ms') ? `${value.toFixed(0)} ms` : value.toFixed(3);
}
