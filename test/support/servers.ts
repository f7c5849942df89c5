import type { Bus } from '../../runner/bus/index.ts';
import { waitForStorage } from '../../runner/storage/ready.ts';
import { type NatsServer, openTestBus, startNats } from './nats.ts';
import { openPlace, type TestPlace } from './recording.ts';
import { startVersitygw } from './versitygw.ts';

/** What commands talk to, without a runner: a bus with its streams, S3 with its bucket. Tests write what a runner would. */
export interface TestServers extends AsyncDisposable {
  nats: NatsServer;
  bus: Bus;
  s3: Awaited<ReturnType<typeof startVersitygw>>;
  place: TestPlace;
  /** Points commands and foreign clients at both, and away from what else runs on the machine. */
  env: Record<string, string>;
}

export async function startServers(): Promise<TestServers> {
  const nats = await startNats();
  const bus = await openTestBus(nats);
  const s3 = await startVersitygw();
  const place = await openPlace(s3);
  await waitForStorage(place.store, place.log, { createBucket: true, signal: new AbortController().signal });
  return {
    ...{ nats, bus, s3, place },
    env: {
      NATS_URL: nats.url,
      AWS_ENDPOINT_URL: s3.endpoint,
      AWS_ACCESS_KEY_ID: s3.credentials.accessKeyId,
      AWS_SECRET_ACCESS_KEY: s3.credentials.secretAccessKey,
      AWS_REGION: 'us-east-1',
      AWS_EC2_METADATA_DISABLED: 'true',
      GYMBUS_BUCKET: 'gymbus',
      GYMBUS_DATA: place.folder,
    },
    async [Symbol.asyncDispose]() {
      await place[Symbol.asyncDispose]();
      await s3.stop();
      await bus[Symbol.asyncDispose]();
      await nats[Symbol.asyncDispose]();
    },
  };
}
