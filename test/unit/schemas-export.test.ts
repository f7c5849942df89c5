import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { SCHEMA_FOLDER, schemaFiles, writeSchemas } from '../../schemas/export.ts';

describe('the exported JSON Schema', () => {
  it('is what the schemas say now; `npm run schemas` writes it anew', () => {
    const onDisk = new Map(
      readdirSync(SCHEMA_FOLDER).map((name) => [name, readFileSync(path.join(SCHEMA_FOLDER, name), 'utf8')]),
    );
    expect([...onDisk.keys()].sort()).toEqual([...schemaFiles().keys()].sort());
    for (const [name, text] of schemaFiles()) expect(onDisk.get(name), name).toBe(text);
  });

  it('names itself and its version', () => {
    const job = JSON.parse(schemaFiles().get('job.v1.json') ?? '');
    expect(job).toMatchObject({ $id: 'urn:gymbus:job.v1', title: 'TrajectoryJob', additionalProperties: false });
  });

  it('asks of a publisher six fields and no more', () => {
    const job = JSON.parse(schemaFiles().get('job.v1.json') ?? '');
    expect(job.required.sort()).toEqual(['batch_id', 'image', 'instruction', 'job_id', 'policy', 'schema']);
  });

  it('lets readers of everything but a job ignore what they do not know', () => {
    for (const [name, text] of schemaFiles()) {
      const schema = JSON.parse(text);
      if (name !== 'job.v1.json' && name !== 'action.v1.json')
        expect(schema.additionalProperties, name).not.toBe(false);
    }
  });

  it('leaves no file of a schema that is gone', () => {
    const folder = mkdtempSync(path.join(os.tmpdir(), 'gymbus-schemas-'));
    try {
      writeFileSync(path.join(folder, 'gone.v1.json'), '{}');
      writeSchemas(folder);
      expect(readdirSync(folder).sort()).toEqual([...schemaFiles().keys()].sort());
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
