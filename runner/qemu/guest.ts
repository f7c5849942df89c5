import { z } from 'zod';
import { Gatherer } from '../../functions/gatherer.ts';
import {
  type CommandResult,
  type Guest,
  type GuestCommand,
  GuestFileError,
  GuestSilent,
  type ScreenSize,
} from '../../functions/guest.ts';
import { HelperError } from './errors.ts';
import type { HelperClient } from './helper.ts';

/** Past a command's own limit: the time to kill its processes and carry 256 KiB back through an emulated serial port. */
const EXEC_MARGIN_MS = 15_000;
/** Starting a process takes a tenth of a second; a starved guest, seconds. */
const SPAWN_DEADLINE_MS = 20_000;
/** A piece of a file takes some tens of milliseconds. */
const FILE_DEADLINE_MS = 20_000;
/** Bytes kept of each of a command's streams. */
const MAX_OUTPUT_BYTES = 256 * 1024;
/** Bytes of a file per request: in base64 it stays below the protocol's line of 1 MiB. */
const FILE_CHUNK_BYTES = 384 * 1024;

const Exec = z.object({
  returncode: z.number(),
  stdout_b64: z.string(),
  stderr_b64: z.string(),
  timed_out: z.boolean(),
  truncated: z.boolean(),
});
const Spawn = z.object({ pid: z.number() });
const Read = z.object({ data_b64: z.string(), size: z.number(), eof: z.boolean() });

/** What functions may do inside a machine, over its helper. */
export class HelperGuest implements Guest {
  readonly screen: ScreenSize;
  readonly account: { name: string; password: string };
  readonly #helper: HelperClient;

  constructor(helper: HelperClient, screen: ScreenSize, account: { name: string; password: string }) {
    this.#helper = helper;
    this.screen = screen;
    this.account = account;
  }

  async exec(command: GuestCommand, signal: AbortSignal): Promise<CommandResult> {
    const reply = await this.#call(
      'exec',
      {
        ...commandFields(command),
        ...(command.stdin === undefined ? {} : { stdin_b64: base64(command.stdin) }),
        timeout_s: command.timeoutMs / 1_000,
        max_output: MAX_OUTPUT_BYTES,
      },
      Exec,
      command.timeoutMs + EXEC_MARGIN_MS,
      signal,
    );
    return {
      returncode: reply.returncode,
      stdout: Buffer.from(reply.stdout_b64, 'base64'),
      stderr: Buffer.from(reply.stderr_b64, 'base64'),
      timedOut: reply.timed_out,
      truncated: reply.truncated,
    };
  }

  async spawn(command: Omit<GuestCommand, 'timeoutMs' | 'stdin'>, signal: AbortSignal): Promise<number> {
    return (await this.#call('spawn', commandFields(command), Spawn, SPAWN_DEADLINE_MS, signal)).pid;
  }

  async readFile(path: string, options: { maxBytes: number }, signal: AbortSignal): Promise<Buffer> {
    let file: Gatherer | undefined;
    let offset = 0;
    for (;;) {
      const reply = await this.#file(path, 'read_file', { path, offset, length: FILE_CHUNK_BYTES }, Read, signal);
      const chunk = Buffer.from(reply.data_b64, 'base64');
      offset += chunk.length;
      if (reply.size > options.maxBytes || offset > options.maxBytes) {
        const bytes = Math.max(reply.size, offset);
        throw new GuestFileError(
          'EFBIG',
          path,
          `${path} has ${bytes} bytes, more than the ${options.maxBytes} allowed`,
        );
      }
      file ??= new Gatherer(Math.max(0, reply.size));
      file.add(chunk);
      if (reply.eof || chunk.length === 0) return file.whole();
    }
  }

  async writeFile(path: string, data: Uint8Array, options: { mode?: number }, signal: AbortSignal): Promise<void> {
    let offset = 0;
    do {
      const chunk = data.subarray(offset, offset + FILE_CHUNK_BYTES);
      const fields = { path, offset, data_b64: base64(chunk), user: 'user', ...options };
      await this.#file(path, 'write_file', fields, z.unknown(), signal);
      offset += chunk.length;
    } while (offset < data.length);
  }

  /** A file the guest says it cannot read or write is an answer, and gets the class that says so. */
  async #file<T extends z.ZodType>(
    path: string,
    op: string,
    fields: Record<string, unknown>,
    reply: T,
    signal: AbortSignal,
  ): Promise<z.infer<T>> {
    try {
      return await this.#call(op, fields, reply, FILE_DEADLINE_MS, signal);
    } catch (error) {
      if (error instanceof HelperError && error.code !== 'EPROTO') {
        throw new GuestFileError(error.code, path, `${path}: ${error.message}`);
      }
      throw error;
    }
  }

  async #call<T extends z.ZodType>(
    op: string,
    fields: Record<string, unknown>,
    reply: T,
    deadlineMs: number,
    signal: AbortSignal,
  ): Promise<z.infer<T>> {
    try {
      return await this.#helper.call(op, fields, reply, { deadlineMs, signal });
    } catch (error) {
      if (error instanceof HelperError && error.code === 'EPROTO') {
        throw new GuestSilent(error.message, { cause: error });
      }
      throw error;
    }
  }
}

function commandFields(command: Omit<GuestCommand, 'timeoutMs' | 'stdin'>): Record<string, unknown> {
  return {
    argv: command.argv,
    user: command.user ?? 'user',
    ...(command.cwd === undefined ? {} : { cwd: command.cwd }),
    ...(command.env === undefined ? {} : { env: command.env }),
  };
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');
}
