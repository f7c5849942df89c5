import path from 'node:path';
import { ensureTool } from '../../infra/tools.ts';
import { cacheDir } from './nats.ts';

/** An environment in which `nats` is the tested one, reaches this server, and knows no contexts of the machine's user. */
export async function natsCliEnv(url: string, home: string): Promise<Record<string, string>> {
  const nats = await ensureTool('nats', { cacheDir });
  return {
    PATH: `${path.dirname(nats)}:${process.env.PATH ?? ''}`,
    NATS_URL: url,
    HOME: home,
    XDG_CONFIG_HOME: home,
    NO_COLOR: '1',
  };
}
