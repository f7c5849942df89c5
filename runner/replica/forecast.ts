import { type Bound, type Capacity, type CapacitySettings, costOf, type HostRoom, planCapacity } from './capacity.ts';
import { type Estimates, priorOf } from './profile.ts';

/** What a forecast rests on. */
export interface ForecastBasis {
  estimates: Estimates;
  /** Under which it was measured, or is assumed. */
  accelerator: 'kvm' | 'tcg';
  guestMemoryMib: number;
  /** Of a full copy of the image's disk. */
  imageDiskBytes: number;
}

/** The same acting replicas without sharing anything: one in each group of processors, its memory and its disk its own. */
interface Unshared {
  /** On one host. */
  replicas: number;
  bound: Bound;
  /** Of such hosts, for as many as act on one that shares. */
  hosts: number;
  usdPerReplicaDay: number | null;
}

export interface Forecast {
  capacity: Capacity;
  /** Acting replicas alone: the others earn nothing. */
  usdPerReplicaDay: number | null;
  /** What the acting ones play together, by what a step was seen to cost. */
  stepsPerSecond: number;
  unshared: Unshared;
  /** Per cent of the cost of a replica, against one that shares nothing. */
  savingPercent: number;
}

/** Pure: what a host would carry, and what that costs. @param usdPerDay of the host; null where no price is known */
export function forecast(
  basis: ForecastBasis,
  room: HostRoom,
  settings: CapacitySettings,
  usdPerDay: number | null,
): Forecast {
  const { estimates } = basis;
  const cost = costOf(estimates);
  const capacity = planCapacity(room, cost, settings);
  const unshared = planUnshared(basis, room, settings);
  const each = (replicas: number): number | null => (usdPerDay === null ? null : usdPerDay / replicas);
  const stepMs = estimates.step_cpu_ms.value ?? Number.NaN;
  return {
    capacity,
    usdPerReplicaDay: each(capacity.acting),
    stepsPerSecond: (capacity.acting * cost.actingCpus * 1_000) / stepMs,
    unshared: {
      replicas: unshared.acting,
      bound: unshared.bound,
      hosts: capacity.acting / unshared.acting,
      usdPerReplicaDay: each(unshared.acting),
    },
    savingPercent: (1 - unshared.acting / capacity.acting) * 100,
  };
}

/** A processor each, all of the guest's memory and QEMU's, a full disk; none is hot beside it. */
function planUnshared(basis: ForecastBasis, room: HostRoom, settings: CapacitySettings): Capacity {
  const prior = priorOf(basis.accelerator, basis.guestMemoryMib);
  const cost = {
    ...{ frozenBytes: 0, hotBytes: 0, actingBytes: prior.acting_bytes ?? 0 },
    actingCpus: Math.max(1, basis.estimates.acting_cpu.value ?? 1),
    diskBytes: basis.imageDiskBytes + (basis.estimates.episode_disk_bytes.value ?? 0),
  };
  return planCapacity(room, cost, { diskFloorBytes: settings.diskFloorBytes });
}
