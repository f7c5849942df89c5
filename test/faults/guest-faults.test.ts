import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readAttempts } from '../../runner/bus/attempts.ts';
import { attemptFiles, objectKeys, type TrajectoryJobInput } from '../../schemas/index.ts';
import { openDesktopGym } from '../support/desktop-gym.ts';
import { quickJob } from '../support/fault-jobs.ts';
import { GUEST_FAULTS, type GuestFault } from '../support/guest-faults.ts';
import type { TestGym } from '../support/gym.ts';
import { available } from '../support/requirement.ts';
import { expectSettled, settled } from '../support/settled.ts';

/** Four at a time; the slowest hangs for half a minute before it is sure, and all of them on a starved host. */
const MENDED_MS = 500_000;
const MOST_BYTES = 64 << 20;

describe.skipIf(!available('fault'))('a fault of the guest in the middle of an attempt', () => {
  let gym: TestGym;
  let scripts: { server: Server; step(fault: GuestFault): TrajectoryJobInput['setup'] };
  beforeAll(async () => {
    scripts = await serveOnce();
    gym = await openDesktopGym('guest-faults', 4);
  });
  afterAll(async () => {
    await gym?.[Symbol.asyncDispose]();
    scripts?.server.closeAllConnections();
    scripts?.server.close();
  });

  it.concurrent.each(GUEST_FAULTS.filter(({ script }) => script !== null))(
    '$name: is on record as the cause, and the job is played again',
    async (fault) => {
      const job = quickJob(`guest-${fault.name.replaceAll(' ', '-')}`, {
        setup: scripts.step(fault),
        policy: { name: 'scripted', params: { actions: [{ type: 'wait', seconds: 1 }, { type: 'done' }] } },
        limits: { setup_s: 280, total_s: 400 },
      });
      await gym.publish(job);
      await settled(gym, job, MENDED_MS);
      const result = await expectSettled(gym, job);
      expect(result.attempts).toBe(2);
      const history = await readAttempts(gym.bus, job.batch_id, job.job_id);
      const [first, second] = history?.attempts ?? [];
      expect(first).toMatchObject({ class: 'guest', replica_lost: fault.kills });
      // A step whose program the kernel has just ended may be over before the helper tells of it.
      const cause =
        /^.*?the replica was lost during (?:setup|steps): (.*)$/s.exec(first?.message ?? '')?.[1] ?? first?.message;
      expect(cause).toMatch(fault.cause);
      expect(second).toMatchObject({ class: null });
      const folder = objectKeys.attempt(job.batch_id, job.job_id, first?.attempt ?? '');
      const picture = await gym.store.get(`${folder}${attemptFiles.lastPicture}`, MOST_BYTES);
      expect(picture.subarray(1, 4).toString()).toBe('PNG');
      await gym.store.get(`${folder}${attemptFiles.serial}`, MOST_BYTES);
    },
    MENDED_MS,
  );
});

/** The first to ask for a fault's script gets it, everybody later one that does nothing. */
async function serveOnce(): Promise<typeof serving> {
  const given = new Set<string>();
  const server = createServer((request, response) => {
    const fault = GUEST_FAULTS[Number(request.url?.slice(1))];
    const first = fault !== undefined && !given.has(fault.name);
    if (fault) given.add(fault.name);
    response.end(first ? `${fault.script}\nsleep 260\n` : 'true\n');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the script server has no port');
  const step = (fault: GuestFault): TrajectoryJobInput['setup'] => [
    {
      type: 'download',
      parameters: {
        files: [{ url: `http://127.0.0.1:${address.port}/${GUEST_FAULTS.indexOf(fault)}`, path: '/tmp/fault' }],
      },
    },
    { type: 'execute', parameters: { command: 'echo password | sudo -S sh /tmp/fault', shell: true, timeout: 270 } },
  ];
  const serving = { server, step };
  return serving;
}
