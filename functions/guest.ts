/** What a function may do inside a replica. Implemented by the runner; functions own the interface. */
export interface Guest {
  readonly screen: ScreenSize;
  /** The desktop user's name and password, as an image's recipe has them. */
  readonly account: { name: string; password: string };
  /**
   * Runs a command and waits for it. A non-zero exit and a time-out of the command are answers.
   * @throws GuestSilent when the guest does not answer
   * @throws GuestFileError when there is no such program (ENOENT) or it may not be run (EACCES)
   */
  exec(command: GuestCommand, signal: AbortSignal): Promise<CommandResult>;
  /** Starts a command and leaves it running; throws as `exec` does. @returns its pid in the guest */
  spawn(command: Omit<GuestCommand, 'timeoutMs' | 'stdin'>, signal: AbortSignal): Promise<number>;
  /** @throws GuestFileError when the guest says it cannot be read (ENOENT, EISDIR, EACCES, EFBIG) */
  readFile(path: string, options: { maxBytes: number }, signal: AbortSignal): Promise<Buffer>;
  /** Makes parent directories as needed; the file and they belong to the desktop user. */
  writeFile(path: string, data: Uint8Array, options: { mode?: number }, signal: AbortSignal): Promise<void>;
}

/** Pixels. */
export interface ScreenSize {
  width: number;
  height: number;
}

export interface GuestCommand {
  argv: readonly string[];
  /** `user` (default) runs with the desktop's environment. */
  user?: 'user' | 'root';
  cwd?: string;
  env?: Record<string, string>;
  stdin?: Uint8Array;
  /** The command's process group is killed after it. */
  timeoutMs: number;
}

export interface CommandResult {
  /** Negative: ended by that signal. */
  returncode: number;
  stdout: Buffer;
  stderr: Buffer;
  timedOut: boolean;
  /** More was printed than is kept (256 KiB a stream). */
  truncated: boolean;
}

/** The guest did not answer within its deadline, or its channel is gone: nothing is known of what happened. */
export class GuestSilent extends Error {
  override readonly name = 'GuestSilent';
}

/** The guest answered that a file cannot be had. */
export class GuestFileError extends Error {
  override readonly name = 'GuestFileError';
  readonly code: string;
  readonly path: string;
  constructor(code: string, path: string, message: string) {
    super(message);
    this.code = code;
    this.path = path;
  }
}
