import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { type Logger, pino } from 'pino';
import { Recording, type RecordingPlace } from '../../runner/storage/recorder.ts';
import { ObjectStore, type S3Config } from '../../runner/storage/s3.ts';
import type { AttemptAddress } from '../../runner/storage/spool.ts';
import { Spool } from '../../runner/storage/spool.ts';
import { Uploader, type UploaderOptions } from '../../runner/storage/uploader.ts';
import { sampleAttempt, sampleJob, samplePng, sampleStep } from './samples.ts';

export interface TestPlace extends RecordingPlace, AsyncDisposable {
  log: Logger;
  /** What was logged, parsed. */
  logged: Record<string, unknown>[];
  folder: string;
  begin(address?: AttemptAddress, signal?: AbortSignal): Promise<Recording>;
}

export const never = new AbortController().signal;

/** A runner's storage without the runner, over any S3 server. */
export async function openPlace(
  s3: Pick<S3Config, 'endpoint' | 'credentials'> & Partial<S3Config>,
  options: UploaderOptions & { spoolRoot?: string } = {},
): Promise<TestPlace> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-place-'));
  const logged: Record<string, unknown>[] = [];
  const log = pino({ level: 'debug', base: null }, { write: (line: string) => void logged.push(JSON.parse(line)) });
  const store = new ObjectStore({ region: 'us-east-1', bucket: 'gymbus', stallMs: 2_000, ...s3 });
  const spool = await Spool.open(options.spoolRoot ?? path.join(folder, 'spool'));
  const uploader = new Uploader(store, log, options);
  const place = { store, spool, uploader };
  return {
    ...place,
    log,
    logged,
    folder,
    begin: (address = newAddress(), signal = never) =>
      Recording.begin(place, address, Buffer.from(JSON.stringify(sampleJob())), signal),
    async [Symbol.asyncDispose]() {
      await uploader[Symbol.asyncDispose]();
      store[Symbol.dispose]();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

let jobs = 0;
export function newAddress(): AttemptAddress {
  return { batch: 'storage-test', job: `job-${process.pid}-${++jobs}`, attempt: sampleAttempt() };
}

/** Records a picture and its line. @returns the picture's key */
export async function recordStep(recording: Recording, step: number, png = samplePng()): Promise<string> {
  const screenshot = await recording.screenshot(step, png);
  await recording.step(sampleStep(recording.address, step, screenshot));
  return screenshot.key;
}

/** Keys under an attempt's folder, without the folder. */
export async function keysOf(store: ObjectStore, recording: Recording): Promise<string[]> {
  const prefix = recording.url.slice(`s3://${store.bucket}/`.length);
  const keys = [];
  for await (const { key } of store.list(prefix)) keys.push(key.slice(prefix.length));
  return keys;
}
