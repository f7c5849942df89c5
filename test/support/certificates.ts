import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { execa } from 'execa';

/** A certificate authority of the test's own, and what it can sign. All files are PEM. */
export interface Authority {
  /** Its certificate: what clients are given to trust. */
  caFile: string;
  /** A server's certificate. @param names of the server, as `IP:127.0.0.1` or `DNS:localhost` */
  issue(name: string, names: string, days?: number): Promise<{ cert: string; key: string }>;
}

const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/** Makes an authority in a folder, which must be removed by whoever made it. */
export async function makeAuthority(folder: string, name = 'test authority'): Promise<Authority> {
  const file = (base: string): string => path.join(folder, `${name.replaceAll(' ', '-')}-${base}`);
  const [caFile, caKey] = [file('ca.pem'), file('ca-key.pem')];
  const request = ['req', '-x509', ...KEY, '-days', '2', '-subj', `/CN=${name}`];
  await execa('openssl', [...request, '-keyout', caKey, '-out', caFile]);
  return {
    caFile,
    async issue(server, names, days = 2) {
      const [cert, key, csr, extensions] = ['.pem', '-key.pem', '.csr', '.ext'].map((end) => file(server + end));
      if (!cert || !key || !csr || !extensions) throw new Error('no file names');
      await execa('openssl', ['req', ...KEY, '-subj', `/CN=${server}`, '-keyout', key, '-out', csr]);
      await writeFile(extensions, `subjectAltName=${names}\n`);
      const by = ['-CA', caFile, '-CAkey', caKey, '-CAcreateserial', '-extfile', extensions];
      await execa('openssl', ['x509', '-req', '-in', csr, '-out', cert, '-days', String(days), ...by]);
      return { cert, key };
    },
  };
}
