import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { encodeAccount, encodeOperator, encodeUser, fmtCreds } from '@nats-io/jwt';
import { createAccount, createOperator, createUser } from '@nats-io/nkeys';
import { natsServerConfig } from '../../infra/nats-config.ts';
import { type NatsServer, startNats } from './nats.ts';

/** What a user may do, as nats-server and `infra/nats/permissions` write it. */
export interface Permissions {
  publish: { allow: string[] };
  subscribe: { allow: string[] };
}

export interface TlsFiles {
  cert: string;
  key: string;
}

/** A server that trusts an operator: users are signed by their account, and the server knows only the accounts. */
export interface OperatedNats extends AsyncDisposable {
  server: NatsServer;
  /** Writes a credentials file. @param permissions everything when absent @param expiresAt by default never */
  credentials(name: string, permissions?: Permissions, expiresAt?: Date): Promise<string>;
}

/** No limit, of the account and of each of its users. */
const ANY = -1;
const LIMITS = {
  subs: ANY,
  data: ANY,
  payload: ANY,
  conn: ANY,
  leaf: ANY,
  imports: ANY,
  exports: ANY,
  wildcards: true,
};
const STORAGE = { mem_storage: ANY, disk_storage: ANY, streams: ANY, consumer: ANY };

export async function startOperatedNats(tls?: TlsFiles): Promise<OperatedNats> {
  const [operator, system, lab] = [createOperator(), createAccount(), createAccount()];
  const signed = { signer: operator };
  const accounts = {
    [system.getPublicKey()]: await encodeAccount('SYS', system, { limits: LIMITS }, signed),
    [lab.getPublicKey()]: await encodeAccount('LAB', lab, { limits: { ...LIMITS, ...STORAGE } }, signed),
  };
  const trust = [
    `operator: ${await encodeOperator('lab', operator, { system_account: system.getPublicKey() })}`,
    `resolver: MEMORY\nresolver_preload: ${JSON.stringify(accounts)}`,
  ];
  const server = await startNats({
    config: (port, storeDir) =>
      [natsServerConfig({ host: '127.0.0.1', port, storeDir }), ...trust, tlsOf(tls)].join('\n'),
  });
  return {
    server,
    async credentials(name, permissions, expiresAt) {
      const user = createUser();
      const { publish, subscribe } = permissions ?? {};
      const rights = { ...(publish && { pub: publish }), ...(subscribe && { sub: subscribe }) };
      const until = expiresAt && { exp: Math.floor(expiresAt.getTime() / 1_000) };
      const jwt = await encodeUser(name, user, lab, { subs: ANY, data: ANY, payload: ANY, ...rights }, until);
      const file = path.join(server.folder, `${name}.creds`);
      await writeFile(file, fmtCreds(jwt, user), { mode: 0o600 });
      return file;
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** The block of a server's configuration that turns TLS on; clients are told to use it. */
export function tlsOf(tls?: TlsFiles): string {
  return tls ? `tls { cert_file: ${JSON.stringify(tls.cert)}, key_file: ${JSON.stringify(tls.key)} }\n` : '';
}
