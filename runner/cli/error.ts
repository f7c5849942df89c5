/** Exit codes of the command line, the same for every command. */
export const EXIT = {
  ok: 0,
  /** It ran, and the answer is no: a job failed, a check did not pass, the stack is not there. */
  no: 1,
  /** It was called wrongly. */
  usage: 2,
  /** Ended by the user. */
  interrupted: 130,
} as const;

/** Names of files may be as long as a file system likes. */
const MOST_CHARACTERS = 200;

/** A file's name for a message. */
export function cut(file: string): string {
  return file.length > MOST_CHARACTERS ? `${file.slice(0, MOST_CHARACTERS)}...` : file;
}

/** Ends a command with a message for people and an exit code; never a stack trace. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exitCode: number;
  constructor(message: string, exitCode: number = EXIT.no, options: { cause?: unknown } = {}) {
    super(message, options);
    this.exitCode = exitCode;
  }
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
