/** What is looked at before the bus is asked for jobs. */
export interface HostState {
  diskFreeBytes: number;
  diskFloorBytes: number;
  spoolBytes: number;
  spoolLimitBytes: number;
  /** Jobs that were played and wait for S3 or the bus. */
  waitingJobs: number;
  /** What S3 says when it takes nothing that it is given; null when it does, or is away. */
  storageRefusal: string | null;
  poolTrouble: string | null;
}

/** Each is some 100 KiB of memory and a beat every 10 s. */
const MOST_WAITING_JOBS = 1_000;

/**
 * Why this host takes no jobs now, or null when it may. Jobs under way go on. While S3 is away jobs
 * are still taken: the spool holds what they record, and when it is full this says so. One that refuses would have each
 * job played for nothing, again and again. The order is that of what a person should mend first.
 */
export function holdReason(state: HostState): string | null {
  if (state.diskFreeBytes < state.diskFloorBytes) {
    return `disk: ${gib(state.diskFreeBytes)} GiB free, floor is ${gib(state.diskFloorBytes)} GiB; free some, or lower GYMBUS_DISK_FLOOR_GIB`;
  }
  if (state.spoolBytes > state.spoolLimitBytes) {
    return `spool: ${gib(state.spoolBytes)} GiB wait for S3, limit is ${gib(state.spoolLimitBytes)} GiB`;
  }
  if (state.waitingJobs > MOST_WAITING_JOBS) {
    return `spool: ${state.waitingJobs} jobs wait for S3, limit is ${MOST_WAITING_JOBS}`;
  }
  if (state.storageRefusal !== null) return `S3: ${state.storageRefusal}`;
  return state.poolTrouble;
}

function gib(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(1);
}
