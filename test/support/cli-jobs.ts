import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { commitOutcome } from '../../runner/bus/outcomes.ts';
import type { Result, TrajectoryJobInput } from '../../schemas/index.ts';
import { type Ended, runGymbus } from './command.ts';
import { sampleAttempt, sampleJob, sampleResult } from './samples.ts';
import { startServers, type TestServers } from './servers.ts';

/** A place to call commands from, beside a bus and an S3 without a runner. */
export interface CliPlace extends AsyncDisposable {
  servers: TestServers;
  folder: string;
  gymbus(...args: string[]): Promise<Ended>;
  /** A file of job lines. */
  linesFile(name: string, jobs: readonly object[]): Promise<string>;
  /** As a runner ends a job: its outcome, then the message gone. */
  conclude(batch: string, id: string, over?: Partial<Result>): Promise<void>;
}

export async function openCliPlace(): Promise<CliPlace> {
  const servers = await startServers();
  const folder = path.join(servers.place.folder, 'here');
  await mkdir(folder);
  return {
    ...{ servers, folder },
    gymbus: (...args) => runGymbus(args, servers.env, { cwd: folder }),
    async linesFile(name, jobs) {
      const file = path.join(folder, name);
      await writeFile(file, jobs.map((line) => `${JSON.stringify(line)}\n`).join(''));
      return file;
    },
    async conclude(batch, id, over = {}) {
      await commitOutcome(servers.bus, sampleResult({ batch, job: id, attempt: sampleAttempt() }, over), 0);
      const subject = servers.bus.names.jobSubject({ image: 'debian-desktop', batch, job: id });
      await servers.bus.jsm.streams.purge(servers.bus.names.jobsStream, { filter: subject });
    },
    [Symbol.asyncDispose]: () => servers[Symbol.asyncDispose](),
  };
}

export function randomJob(batch: string, id: string, over: Partial<TrajectoryJobInput> = {}): TrajectoryJobInput {
  return sampleJob({ batch_id: batch, job_id: id, policy: { name: 'random' }, ...over });
}
