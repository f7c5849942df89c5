import { pino } from 'pino';
import { expect, it } from 'vitest';
import type { Engine } from '../../runner/replica/engine.ts';
import { VirtualReplica } from '../../runner/replica/replica.ts';
import type { Template } from '../../runner/replica/template.ts';

it('is found, and not a machine that died, where a replica is condemned', () => {
  const engine = { log: pino({ level: 'silent' }) } as unknown as Engine;
  const template = { image: { name: 'desk', digest: 'd' } } as unknown as Template;
  const replica = new VirtualReplica(engine, template);
  replica.condemn('the X server hangs: no answer for 16 s');
  expect(replica.lost.reason).toMatchObject({
    name: 'ReplicaLost',
    message: replica.cause,
    byHost: false,
    found: true,
  });
});
