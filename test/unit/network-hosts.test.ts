import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkJob } from '../../functions/check-job.ts';
import { hostProblems, includesHost } from '../../functions/network/hosts.ts';
import { refusedHosts } from '../../runner/cli/host-policy.ts';
import { HostPattern } from '../../schemas/index.ts';
import { linesOf } from '../support/refusals.ts';
import { sampleStatus } from '../support/samples.ts';
import { job } from './functions/local-guest.ts';

describe('hosts as they are named', () => {
  it.each(['example.org', '*.example.org', 'a-b.c', 'localhost', '127.0.0.1:8080', 'xn--bcher-kva.example:65535'])(
    '%s',
    (host) => expect(HostPattern.safeParse(host).success).toBe(true),
  );

  it.each([
    ...['', '*', '*.', 'Example.org', 'example.org:', 'example.org:0', 'example.org:65536', 'example.org:080'],
    ...[
      'http://example.org',
      'example.org/a',
      'a.*.org',
      '*example.org',
      '-a.org',
      'a..org',
      '[::1]',
      'a b',
      'a_b.org',
    ],
    `${'a'.repeat(64)}.org`,
  ])('but not %j', (host) => {
    expect(linesOf(HostPattern, host)).toEqual([
      expect.stringContaining('must be a host in lower case like example.org'),
    ]);
  });
});

describe('hosts that a list includes', () => {
  it.each([
    ['example.org', 'example.org', 443, true],
    ['example.org', 'example.org', 80, true],
    ['example.org', 'example.org', 22, false],
    ['example.org', 'www.example.org', 443, false],
    ['example.org', 'badexample.org', 443, false],
    ['example.org', 'example.org.evil.net', 443, false],
    ['example.org:8443', 'example.org', 8443, true],
    ['example.org:8443', 'example.org', 443, false],
    ['*.example.org', 'a.b.example.org', 443, true],
    ['*.example.org', 'example.org', 443, false],
    ['*.example.org', 'badexample.org', 443, false],
    // As a guest may write it: no name.
    ['*.example.org', '*.example.org', 443, false],
  ])('%s, %s:%i: %s', (host, name, port, included) => expect(includesHost([host], name, port)).toBe(included));
});

describe('what the policy of an image does not allow', () => {
  const image = (...allows: string[]) => ({ name: 'desk', allows });

  it.each([
    [['example.org'], ['example.org']],
    [['a.example.org', '*.b.example.org', '*.example.org'], ['*.example.org']],
    [['example.org:8443'], ['example.org', 'example.org:8443']],
    // Both ports of the web, each by a line of its own.
    [['example.org'], ['example.org:80', '*.org:443']],
  ])('%j may be asked for where %j is allowed', (asked, allows) =>
    expect(hostProblems(asked, image(...allows))).toEqual([]),
  );

  it('is told with the host, what is allowed and what to do', () => {
    expect(hostProblems(['a.org', 'evil.net', 'a.org:22'], image('a.org', '*.b.org'))).toEqual([
      'network.hosts.1: the policy of image desk does not allow "evil.net", it allows a.org, *.b.org; leave it out, or have it added to network.hosts of the image\'s recipe',
      expect.stringContaining('network.hosts.2: the policy of image desk does not allow "a.org:22", it allows'),
    ]);
    expect(hostProblems(['a.org'], image('a.org:443'))).toEqual([
      expect.stringContaining('does not allow "a.org" on port 80, it allows a.org:443'),
    ]);
    expect(hostProblems(['a.org'], image())).toEqual([
      expect.stringContaining('"a.org", it allows none; leave it out'),
    ]);
    // All names below one are more than that one's.
    expect(hostProblems(['*.example.org'], image('example.org', 'www.example.org'))).toHaveLength(1);
  });

  it('no guest reaches through a job that was let through', () => {
    const label = fc.constantFrom('a', 'b', 'c');
    const name = fc.array(label, { minLength: 1, maxLength: 4 }).map((labels) => labels.join('.'));
    const pattern = fc
      .tuple(fc.constantFrom('', '*.'), name, fc.constantFrom('', ':80', ':443', ':8443'))
      .map((parts) => parts.join(''));
    fc.assert(
      fc.property(
        fc.array(pattern, { maxLength: 4 }),
        fc.array(pattern, { maxLength: 4 }),
        name,
        fc.constantFrom(80, 443, 8443),
        (allows, asked, host, port) => {
          fc.pre(hostProblems(asked, { name: 'desk', allows }).length === 0);
          if (includesHost(asked, host, port)) expect(includesHost(allows, host, port)).toBe(true);
        },
      ),
      { numRuns: 2_000 },
    );
  });
});

describe('a job that asks for hosts', () => {
  const asking = job({ network: { hosts: ['example.org'] } });

  it('is checked by the policy where that is known', () => {
    expect(checkJob(asking)).toEqual([]);
    expect(checkJob(asking, undefined, ['*.org'])).toEqual([]);
    expect(checkJob(asking, undefined, [])).toEqual([expect.stringContaining('network.hosts.0: the policy of image')]);
    expect(checkJob(job({}), undefined, [])).toEqual([]);
  });

  it('is not published where every live runner would refuse it', () => {
    const asked = { address: { image: 'desk', batch: 'b', job: 'j' }, data: Buffer.alloc(0), hosts: ['example.org'] };
    const serving = (network?: string[]) =>
      sampleStatus({ images: [{ name: 'desk', digest: 'd', ...(network ? { network } : {}) }] });
    expect(refusedHosts([asked], [serving([]), serving(['a.org'])])).toEqual([
      expect.stringContaining('b/j: network.hosts.0: the policy of image desk does not allow "example.org"'),
    ]);
    for (const runners of [[], [serving()], [serving([]), serving(['*.org'])], [sampleStatus()]]) {
      expect(refusedHosts([asked], runners)).toEqual([]);
    }
    expect(refusedHosts([{ ...asked, hosts: [] }], [serving([])])).toEqual([]);
  });
});
