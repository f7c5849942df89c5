import type { VirtualReplica } from './replica.ts';

/** What keeps a shelf from being full. */
export interface ShelfTrouble {
  message: string;
  failures: number;
}

/** What a shelf tells, and asks, whoever has it. */
export interface ShelfKeeper {
  /** Something of its replicas is different. */
  changed(): void;
  /** Whether there is room for one more frozen replica, or for a frozen one to become hot. @returns why not, or null */
  admit(kind: 'frozen' | 'hot'): string | null;
  /** One was made. */
  cloned(milliseconds: number): void;
  /** One belongs to an attempt. */
  leased(replica: VirtualReplica): void;
  /** A leased one is about to be killed. Must not throw. */
  ending(replica: VirtualReplica): Promise<void>;
}
