/** A user other than the runner's own, whose rights a process gets and no others. */
export interface MachineUser {
  name: string;
  uid: number;
  gid: number;
  /** Supplementary groups. */
  groups: readonly number[];
}

/** What a process may do and take. */
export interface Rights {
  /** Null: whatever the runner is. */
  user: MachineUser | null;
  /** Files of cgroups to write oneself into, before a byte is charged to anybody. */
  joins: readonly string[];
  /** Most bytes of writable private memory, mapped and not yet used ones included; null where a cgroup bounds it. */
  dataBytes: number | null;
  /** Whether the kernel may merge its memory with that of others (KSM). */
  mergeMemory?: boolean;
  /** Numbers of the processors that it may use; null for all. */
  cpus?: readonly number[] | null;
}

/** Of a process that is nobody's but the runner's. */
export const OWN_RIGHTS: Rights = { user: null, joins: [], dataBytes: null };
