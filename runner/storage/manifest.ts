import { attemptFiles, Manifest, type Result } from '../../schemas/index.ts';
import type { AttemptSpool } from './attempt-spool.ts';
import { contentTypeOf } from './content-type.ts';
import type { Uploader } from './uploader.ts';

/**
 * Puts the manifest, which lists every other object of the attempt: the last of its files to appear.
 * @param spool sealed, and everything in it flushed @throws when the outcome is another attempt's
 */
export async function putManifest(
  uploader: Uploader,
  spool: AttemptSpool,
  attempt: { outcome: Result; versions: Record<string, string> },
  signal: AbortSignal,
): Promise<Manifest> {
  const { batch_id, job_id, attempt: id } = spool.record;
  const { outcome } = attempt;
  if (outcome.batch_id !== batch_id || outcome.job_id !== job_id || outcome.attempt !== id) {
    throw new Error(
      `the outcome is of ${outcome.batch_id}/${outcome.job_id} attempt ${outcome.attempt}, the recording of ${batch_id}/${job_id} attempt ${id}`,
    );
  }
  const manifest = Manifest.parse({
    schema: 'gymbus.manifest.v1',
    batch_id,
    job_id,
    attempt: id,
    job_sha256: outcome.job_sha256,
    outcome,
    objects: spool.objects(),
    versions: attempt.versions,
    timings_ms: outcome.timings_ms,
  });
  const name = attemptFiles.manifest;
  const file = await spool.writeLast(name, Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`));
  await uploader.put(spool.keyOf(name), file, contentTypeOf(name), signal);
  return manifest;
}
