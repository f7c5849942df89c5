import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { RunnerStatus } from '../../schemas/index.ts';
import { RunnerRefused } from './refused.ts';

export interface HealthServer extends AsyncDisposable {
  /** The port it listens on. */
  readonly port: number;
}

/** What `/metrics` answers with. */
export interface MetricsPage {
  readonly contentType: string;
  text(): Promise<string>;
}

/**
 * Serves on loopback `/healthz`, the heartbeat as JSON, 200 while the runner pulls or could, 503 while it holds or drains, and `/metrics`
 * for Prometheus.
 * @param port 0 for any free one
 * @throws RunnerRefused when the port is taken, or not for this user
 */
export async function serveHealth(
  port: number,
  status: () => RunnerStatus,
  metrics: MetricsPage,
): Promise<HealthServer> {
  const server = createServer((request, response) => {
    if (request.method === 'GET' && request.url === '/metrics') {
      metrics.text().then(
        (text) => response.writeHead(200, { 'content-type': metrics.contentType }).end(text),
        (error: Error) => response.writeHead(500, { 'content-type': 'text/plain' }).end(`${error.message}\n`),
      );
      return;
    }
    if (request.method !== 'GET' || request.url !== '/healthz') {
      response.writeHead(404, { 'content-type': 'text/plain' }).end('the pages here are GET /healthz and /metrics\n');
      return;
    }
    const now = status();
    response
      .writeHead(now.state === 'running' ? 200 : 503, { 'content-type': 'application/json' })
      .end(`${JSON.stringify(now)}\n`);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(
        new RunnerRefused(
          `GYMBUS_HEALTH_PORT=${port} cannot be listened on (${error.code}); choose another, or 0 for any free one`,
          { cause: error },
        ),
      ),
    );
    server.listen(port, '127.0.0.1', resolve);
  });
  server.unref();
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
