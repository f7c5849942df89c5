import { PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { waitForStorage } from '../../runner/storage/ready.ts';
import { never, openPlace, recordStep, type TestPlace } from '../support/recording.ts';
import { samplePng, sampleResult } from '../support/samples.ts';
import { startVersitygw } from '../support/versitygw.ts';

export interface StorageFigure {
  figure: string;
  value: number;
  unit: string;
  baseline: number;
  ratio: number;
  goal: string;
  met: boolean;
}

/** A picture of a busy desktop; noise, so that nothing on the way makes it smaller. */
const PICTURE = { width: 500, height: 400 };
const STEPS = 300;
const ROUNDS = 3;
const PARALLEL = 8;

/**
 * Pictures a second from `screenshot()` to the manifest in S3, against a bare SDK loop over the same server, round about;
 * and what recording 300 steps adds to the process's memory.
 */
export async function storageFigures(): Promise<StorageFigure[]> {
  const server = await startVersitygw();
  const place = await openPlace(server, { concurrency: PARALLEL });
  const client = new S3Client({
    endpoint: server.endpoint,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: server.credentials,
  });
  try {
    await waitForStorage(place.store, place.log, { createBucket: true, signal: never });
    const pictures = Array.from({ length: 20 }, () => samplePng(PICTURE.width, PICTURE.height));
    await bareLoop(client, pictures, 50, 'warm');
    const recorded: number[] = [];
    const bare: number[] = [];
    const growth: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      bare.push(await bareLoop(client, pictures, STEPS, `round-${round}`));
      const before = process.memoryUsage().rss;
      recorded.push(await recordAll(place, pictures));
      growth.push((process.memoryUsage().rss - before) / 2 ** 20);
    }
    const rate = STEPS / (median(recorded) / 1_000);
    const baseline = STEPS / (median(bare) / 1_000);
    const bytes = STEPS * (pictures[0]?.byteLength ?? 0);
    return [
      {
        ...{ figure: 'pictures recorded and in S3', value: rate, unit: '/s', baseline, ratio: rate / baseline },
        ...{ goal: '>= 0.9 of a bare SDK loop', met: rate / baseline >= 0.9 },
      },
      {
        ...{
          figure: 'memory added by the second and third 300 steps',
          value: Math.max(...growth.slice(1)),
          unit: 'MiB',
        },
        ...{ baseline: bytes / 2 ** 20, ratio: (Math.max(...growth.slice(1)) * 2 ** 20) / bytes },
        ...{ goal: '< 0.5 of what is uploaded', met: Math.max(...growth.slice(1)) * 2 ** 20 < bytes / 2 },
      },
    ];
  } finally {
    client.destroy();
    await place[Symbol.asyncDispose]();
    await server.stop();
  }
}

async function recordAll(place: TestPlace, pictures: readonly Buffer[]): Promise<number> {
  const startedAt = performance.now();
  await using recording = await place.begin();
  for (let step = 0; step < STEPS; step++) await recordStep(recording, step, pictures[step % pictures.length]);
  await recording.finish({ outcome: sampleResult(recording.address), versions: {} }, never);
  return performance.now() - startedAt;
}

/** The fastest that this SDK and this server do: no disk, no hashes of ours, no manifest. @returns milliseconds */
async function bareLoop(client: S3Client, pictures: readonly Buffer[], count: number, name: string): Promise<number> {
  const startedAt = performance.now();
  let next = 0;
  const worker = async (): Promise<void> => {
    for (let step = next++; step < count; step = next++) {
      const Body = pictures[step % pictures.length];
      if (Body === undefined) throw new Error('there is no picture to put');
      await client.send(new PutObjectCommand({ Bucket: 'gymbus', Key: `bare/${name}/${step}.png`, Body }));
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  return performance.now() - startedAt;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}
