import type { Estimates } from './profile.ts';

/** What a host has to give: this one, or one that is planned. */
export interface HostRoom {
  /** For replicas and for what must stay free: what could be had without swapping, and what replicas have already. */
  memoryBytes: number;
  cpus: number;
  diskBytes: number;
  /** A replica lies within one: its processors and its memory are of the same node. */
  numaNodes: number;
  /** How many files a runner may have open: a replica is some of them. Infinity where it is not known. */
  openFiles: number;
  /** Groups of processors, where a setting says how many act in each. */
  groups?: number;
}

/** What a replica takes. */
export interface ReplicaCost {
  frozenBytes: number;
  hotBytes: number;
  actingBytes: number;
  /** Processors of one that acts. */
  actingCpus: number;
  /** What an episode writes. */
  diskBytes: number;
}

export type Kind = 'frozen' | 'hot' | 'acting';
export type Bound = 'memory' | 'cpu' | 'group' | 'disk' | 'files' | 'setting';

export interface KindCapacity {
  count: number;
  /** What keeps it from being more. */
  bound: Bound;
}

export interface Capacity {
  /** Replicas that may belong to an attempt at once. */
  acting: number;
  /** Hot replicas kept of an image, at most. */
  ready: number;
  /** Frozen ones kept behind them, at most. */
  frozen: number;
  /** What keeps `acting` from being more. */
  bound: Bound;
  /** Acting replicas that the processors alone would allow: each speaks for one part in so many of them. */
  places: number;
  /** How many of each kind the host could hold, were there none of another: but beside each that acts another is hot. */
  kinds: Record<Kind, KindCapacity>;
}

/** What a person has set, of each image. */
export interface CapacitySettings {
  acting?: number | undefined;
  ready?: number | undefined;
  frozen?: number | undefined;
  /** K: how many may act in each group of processors, in place of what the processors are thought to carry. */
  perGroup?: number | undefined;
  diskFloorBytes: number;
}

const mib = 2 ** 20;
/** For everything else on the host; below this it would swap or kill. */
export const MEMORY_FLOOR_BYTES = 1024 * mib;
/** Pipes and sockets of one machine in its runner, and what is opened while it is made. */
const FILES_PER_REPLICA = 8;
/** Of a runner without replicas: connections, logs, trajectories. */
const FILES_FLOOR = 512;
/** However little an episode is seen to use, e.g. because its policy thinks for long: what it may use at once, it uses at times. */
const MOST_ACTING_PER_CPU = 32;
/** Fewer frozen ones behind the hot ones are no stock. */
const LEAST_FROZEN = 2;

/** Jobs of tomorrow may use more than those that were measured: what has been admitted cannot be taken back. */
const ACTING_MARGIN = 1.5;

export function costOf(estimates: Estimates): ReplicaCost {
  const of = (figure: keyof Estimates): number => estimates[figure].value ?? 0;
  return {
    frozenBytes: of('frozen_bytes'),
    hotBytes: Math.max(of('hot_bytes'), of('frozen_bytes')),
    // What is assumed is the worst there can be.
    actingBytes: Math.max(of('acting_bytes') * (estimates.acting_bytes.assumed ? 1 : ACTING_MARGIN), of('hot_bytes')),
    actingCpus: Math.max(of('acting_cpu'), 1 / MOST_ACTING_PER_CPU),
    diskBytes: of('episode_disk_bytes'),
  };
}

/** What the dearest of several takes, in each respect: any of them may be what acts next. */
export function dearest(costs: readonly ReplicaCost[]): ReplicaCost {
  const most = (of: (cost: ReplicaCost) => number): number => Math.max(...costs.map(of));
  return {
    frozenBytes: most((cost) => cost.frozenBytes),
    hotBytes: most((cost) => cost.hotBytes),
    actingBytes: most((cost) => cost.actingBytes),
    actingCpus: most((cost) => cost.actingCpus),
    diskBytes: most((cost) => cost.diskBytes),
  };
}

/**
 * Pure. How many replicas a host may carry: of each kind the least that memory, processors, disk and open files allow, at least one,
 * so that a small host still serves. A setting overrides, and is then what binds; whether there is room for it is found out by each
 * replica's admission. By default as many are kept hot as may act, to take their places, and as many frozen behind them.
 */
export function planCapacity(room: HostRoom, cost: ReplicaCost, settings: CapacitySettings): Capacity {
  const { numaNodes } = room;
  const memory = Math.max(0, room.memoryBytes - MEMORY_FLOOR_BYTES) / numaNodes;
  const cpus = room.cpus / numaNodes;
  const ofNodes = (eachNode: number): number => Math.floor(eachNode) * numaNodes;
  const files = Math.floor(Math.max(0, room.openFiles - FILES_FLOOR) / FILES_PER_REPLICA);
  const disk = Math.floor(Math.max(0, room.diskBytes - settings.diskFloorBytes) / cost.diskBytes);
  // Two thirds of a processor may be a third of it twice: sums of such parts are not to miss a place.
  const places = ofNodes(cpus / cost.actingCpus + 1e-9);
  const cpu = settings.perGroup === undefined ? { cpu: places } : { group: settings.perGroup * (room.groups ?? 1) };
  const kinds: Record<Kind, KindCapacity> = {
    frozen: least({ memory: ofNodes(memory / cost.frozenBytes), files }, settings.frozen),
    hot: least({ memory: ofNodes(memory / cost.hotBytes), files }, settings.ready),
    // For each that acts another is hot, to take its place.
    acting: least(
      { memory: ofNodes(memory / (cost.actingBytes + cost.hotBytes)), ...cpu, disk, files: Math.floor(files / 2) },
      settings.acting,
    ),
  };
  const acting = kinds.acting.count;
  return {
    acting,
    ready: settings.ready ?? acting,
    // Whoever says how many are to be hot says how many are kept.
    frozen: settings.frozen ?? (settings.ready === undefined ? Math.max(LEAST_FROZEN, acting) : 0),
    bound: kinds.acting.bound,
    places: Math.max(1, cpu.group ?? places),
    kinds,
  };
}

function least(limits: Partial<Record<Bound, number>>, setting: number | undefined): KindCapacity {
  if (setting !== undefined) return { count: setting, bound: 'setting' };
  const entries = Object.entries(limits) as [Bound, number][];
  const [bound, count] = entries.reduce((one, other) => (other[1] < one[1] ? other : one));
  return { count: Math.max(1, count), bound };
}

/** Bytes in GiB, for people. */
export function gib(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(1);
}
