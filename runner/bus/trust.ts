import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { checkServerIdentity, type PeerCertificate } from 'node:tls';
import { type Authenticator, credsAuthenticator, nkeys, type TlsOptions } from '@nats-io/transport-node';
import type { Logger } from 'pino';
import { readAuthorities } from '../system/authorities.ts';
import { BusRefused } from './errors.ts';

/*
 * Whom we trust, and how we are trusted, by files. The client takes a wrong file for a server that does not answer, and
 * asks again for ever: so each is read here first.
 */

/**
 * For a connection over TLS.
 * @param caFile read again by the client at each reconnection, so that it may be replaced
 * @param hosts of the servers, as they were given @throws BusRefused when no certificate can be read from the file
 */
export function tlsOptions(caFile: string | undefined, hosts: readonly string[]): TlsOptions {
  if (caFile !== undefined) {
    try {
      readAuthorities(caFile);
    } catch (error) {
      throw new BusRefused(
        `NATS_CA=${caFile}: ${(error as Error).message}; name the PEM file of the authority of the server's certificate`,
        { cause: error },
      );
    }
  }
  const addresses = hosts.filter((host) => isIP(host) !== 0);
  const options = {
    ...(caFile === undefined ? {} : { caFile }),
    // The client names no server that is given by its address, and TLS then looks for `localhost` in the certificate.
    checkServerIdentity(name: string, certificate: PeerCertificate): Error | undefined {
      const names = name === 'localhost' ? [...addresses, ...(hosts.includes(name) ? [name] : [])] : [name];
      const errors = names.map((host) => checkServerIdentity(host, certificate));
      return errors.includes(undefined) ? undefined : (errors[0] ?? checkServerIdentity(name, certificate));
    },
  };
  return options;
}

/**
 * Proves who we are by a JWT and its seed, read again at each reconnection, so that they may be replaced.
 * @throws BusRefused when the file holds none
 */
export function credentialsOf(file: string, log: Logger): Authenticator {
  let latest = readCredentials(file);
  return credsAuthenticator(() => {
    try {
      latest = readCredentials(file);
    } catch (error) {
      // Thrown into the client it would close the connection for good.
      log.warn({ err: error }, 'cannot read NATS credentials; using those read before');
    }
    return latest;
  });
}

const PARTS =
  /-{3,}BEGIN NATS USER JWT-{3,}\s+\S+\s+-{3,}END[^\n]*\s[\s\S]*-{3,}BEGIN USER NKEY SEED-{3,}\s+(\S+)\s+-{3,}END/;

function readCredentials(file: string): Uint8Array {
  try {
    const bytes = readFileSync(file);
    const [, seed] = PARTS.exec(bytes.toString('utf8')) ?? [];
    if (seed === undefined)
      throw new Error('not a credentials file: it needs a user JWT and its seed, as nsc writes them');
    nkeys.fromSeed(Buffer.from(seed));
    return bytes;
  } catch (error) {
    throw new BusRefused(`NATS_CREDS=${file}: ${error instanceof Error ? error.message : error}`, { cause: error });
  }
}
