import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** Two ends of a real socket, as between a machine's channel and its client. */
export interface Channel extends AsyncDisposable {
  /** A folder of its own; the socket's file is not in it any more. */
  readonly folder: string;
  readonly near: Socket;
  readonly far: Socket;
}

export async function openChannel(): Promise<Channel> {
  const folder = await mkdtemp(path.join(tmpdir(), 'gymbus-channel-'));
  const server = createServer();
  server.listen(path.join(folder, 's'));
  const near = connect(path.join(folder, 's'));
  const [far] = (await once(server, 'connection')) as [Socket];
  server.close();
  return {
    ...{ folder, near, far },
    async [Symbol.asyncDispose]() {
      near.destroy();
      far.destroy();
      await rm(folder, { recursive: true });
    },
  };
}
