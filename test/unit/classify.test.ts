import { describe, expect, it } from 'vitest';
import { SetupError } from '../../functions/contract.ts';
import { GuestFileError } from '../../functions/guest.ts';
import { LeaseLost } from '../../runner/bus/lease.ts';
import { Cancelled, classify, Drained } from '../../runner/job/classify.ts';
import { PartFailed } from '../../runner/job/part-failed.ts';
import { ClaimFailed, ReplicaLost } from '../../runner/replica/contract.ts';
import { ObjectMissing, StorageAway, StorageFull, StorageRefused } from '../../runner/storage/errors.ts';

const part = (name: 'setup' | 'policy' | 'guest' | 'evaluator', cause: unknown) =>
  new PartFailed(name, `${name} failed`, cause);

const systemError = (code: string, syscall: string) => Object.assign(new Error(code), { code, syscall });

describe('the class of an error', () => {
  it.each([
    ['a part by its name', part('policy', new Error('no')), 'policy', false],
    ['a lost machine, whatever part saw it', part('evaluator', new ReplicaLost('qemu exited')), 'guest', true],
    [
      'a fault found in a guest whose machine lives',
      part('setup', new SetupError('step 0 (execute): gone', { cause: new ReplicaLost('no memory', { found: true }) })),
      'guest',
      false,
    ],
    ['S3 away under a set-up', part('setup', new StorageAway('away')), 'storage', false],
    [
      'S3 that does not hand out an input, as the set-up tells it',
      part('setup', new SetupError('step 0 (upload_file): no', { cause: new StorageRefused('AccessDenied', 'no') })),
      'storage',
      false,
    ],
    [
      'a machine lost under a set-up step',
      part('setup', new SetupError('step 0 (execute): gone', { cause: new ReplicaLost('qemu exited') })),
      'guest',
      true,
    ],
    [
      'a set-up step that failed by itself',
      part('setup', new SetupError('step 0 (execute): exit code 2', { cause: new SetupError('exit code 2') })),
      'setup',
      false,
    ],
    ['S3 refusing', new StorageRefused('NoSuchBucket', 'no'), 'storage', false],
    [
      'an input that is not there',
      part('setup', new SetupError('no input', { cause: new ObjectMissing('k', 'none') })),
      'setup',
      false,
    ],
    [
      "a machine lost to its host's full disk",
      part('guest', new ReplicaLost('guest disk failed on write', { byHost: true })),
      'host',
      false,
    ],
    ['a full disk under a set-up', part('setup', new StorageFull('full')), 'host', false],
    ['a failing disk under a set-up', part('setup', systemError('EIO', 'write')), 'host', false],
    ['too many open files under an evaluation', part('evaluator', systemError('EMFILE', 'open')), 'host', false],
    ['a connection that broke', part('evaluator', systemError('ECONNRESET', 'read')), 'evaluator', false],
    [
      "a guest's own full disk",
      part('setup', new SetupError('no', { cause: new GuestFileError('ENOSPC', '/tmp/a', 'full') })),
      'setup',
      false,
    ],
    ['no replica', new ClaimFailed('none'), 'host', false],
    ['a lost lease', new LeaseLost('lost'), 'host', false],
    ['a drain', new Drained('stop'), 'host', false],
    ['a cancel', new Cancelled('gone'), 'cancelled', false],
    ['what nobody foresaw', new TypeError('undefined is no function'), 'host', false],
  ])('knows %s', (_, error, failureClass, replicaLost) => {
    expect(classify(error)).toMatchObject({ class: failureClass, replicaLost });
  });

  it('keeps the message that names the part, and the cause', () => {
    const error = part('setup', new Error('mkdir: no space'));
    expect(classify(error)).toMatchObject({ message: 'setup failed', cause: error });
  });
});
