import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import {
  Action,
  AttemptHistory,
  BatchRecord,
  JobEvent,
  Manifest,
  Observation,
  Result,
  RunnerStatus,
  Step,
  TrajectoryJob,
} from './index.ts';

/** The contract by the name it has in `schema` fields. Jobs and actions as publishers write them, defaults left out. */
const EXPORTED: { name: string; title: string; schema: z.ZodType; io: 'input' | 'output' }[] = [
  { name: 'job', title: 'TrajectoryJob', schema: TrajectoryJob, io: 'input' },
  { name: 'action', title: 'Action', schema: Action, io: 'input' },
  { name: 'observation', title: 'Observation', schema: Observation, io: 'output' },
  { name: 'step', title: 'Step', schema: Step, io: 'output' },
  { name: 'result', title: 'Result', schema: Result, io: 'output' },
  { name: 'manifest', title: 'Manifest', schema: Manifest, io: 'output' },
  { name: 'event', title: 'JobEvent', schema: JobEvent, io: 'output' },
  { name: 'runner', title: 'RunnerStatus', schema: RunnerStatus, io: 'output' },
  { name: 'attempts', title: 'AttemptHistory', schema: AttemptHistory, io: 'output' },
  { name: 'batch', title: 'BatchRecord', schema: BatchRecord, io: 'output' },
];

export const SCHEMA_FOLDER = path.join(import.meta.dirname, 'json');

/** The JSON Schema files (draft 2020-12) by file name, e.g. `job.v1.json`. */
export function schemaFiles(): Map<string, string> {
  return new Map(
    EXPORTED.map(({ name, title, schema, io }) => {
      const { $schema, ...body } = z.toJSONSchema(schema, { io, target: 'draft-2020-12' });
      const file = { $schema, $id: `urn:gymbus:${name}.v1`, title, ...body };
      return [`${name}.v1.json`, `${JSON.stringify(file, null, 2)}\n`];
    }),
  );
}

/** Writes every file, and removes those of schemas that are no more. */
export function writeSchemas(folder: string): void {
  mkdirSync(folder, { recursive: true });
  const files = schemaFiles();
  for (const name of readdirSync(folder)) if (!files.has(name)) rmSync(path.join(folder, name));
  for (const [name, text] of files) writeFileSync(path.join(folder, name), text);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeSchemas(SCHEMA_FOLDER);
