import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import type { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { checkJob } from '../../functions/check-job.ts';
import { debianDesktop } from '../../images/debian-desktop/recipe.ts';
import { TOOLS } from '../../infra/tools.ts';
import { EXIT } from '../../runner/cli/error.ts';
import { gymbusCommand } from '../../runner/cli/program.ts';
import { Metrics } from '../../runner/host/metrics.ts';
import { keyStroke } from '../../runner/qemu/keyboard.ts';
import { Action, Limits, parseJob, Result, Status, TrajectoryJob } from '../../schemas/index.ts';
import { blocksOf, filledPage, readmeFile, rowsBelow } from '../support/readme.ts';
import { sampleStatus } from '../support/samples.ts';

const page = await readFile(readmeFile, 'utf8');
const names = (cell: string | undefined): string[] => [
  ...new Set([...(cell ?? '').matchAll(/`([a-z0-9_]+)`/g)].map((match) => match[1] ?? '')),
];

it('shows the files that are run, and the tables that follow from the sources', async () => {
  // Written anew by: npm test -- test/integration/readme.test.ts -u
  await expect(await filledPage(page)).toMatchFileSnapshot(readmeFile);
});

describe('its tables of fields are those of the contract', () => {
  it('of a job', () => {
    const rows = rowsBelow(page, 'fields: job');
    expect(rows.map(([name]) => names(name)[0])).toEqual(Object.keys(TrajectoryJob.shape));
    const required = rows.filter(([, kind]) => kind === 'required').map(([name]) => names(name)[0]);
    expect(required).toEqual(z.toJSONSchema(TrajectoryJob, { io: 'input' }).required);
  });

  it('of its limits', () => {
    const limits = rowsBelow(page, 'limits: job').map(([name, value]) => [names(name)[0], Number(value)]);
    expect(Object.fromEntries(limits)).toEqual(Limits.parse({}));
  });

  it('of actions', () => {
    const rows = rowsBelow(page, 'fields: actions').map((row) => row.map(names));
    const known = Action.options.map((option) => {
      const { properties = {}, required = [] } = z.toJSONSchema(option, { io: 'input' });
      const optional = Object.keys(properties).filter((name) => !required.includes(name));
      return [[option.shape.type.value], required.filter((name) => name !== 'type'), optional];
    });
    expect(rows.map((row) => row.map((cells) => [...cells].sort()))).toEqual(
      known.map((row) => row.map((cells) => [...cells].sort())),
    );
  });

  it('of exit codes', () => {
    const table = page.split('| exit code | means |\n')[1]?.split('\n\n')[0] ?? '';
    expect([...table.matchAll(/^\| (\d+) \|/gm)].map(([, exitCode]) => Number(exitCode))).toEqual(Object.values(EXIT));
  });

  it('of outcomes', () => {
    const table = page.split('| `status` | `valid` |')[1]?.split('\n\n')[0] ?? '';
    const statuses = [...table.matchAll(/^\| `(\w+)` \|/gm)].map(([, status]) => status);
    expect(new Set(statuses)).toEqual(new Set(Status.options));
  });
});

it('describes the image as its recipe is', () => {
  const { resolution, time_zone, user } = debianDesktop;
  const [told = ''] = /`debian-desktop` is Debian 12 with[^#]*/.exec(page) ?? [];
  for (const fact of [time_zone, `${resolution.width} x ${resolution.height}`, `\`${user.name}\``])
    expect(told).toContain(fact);
});

it('names keys that there are', () => {
  const [told = ''] = /Keys have names .*?\n\n/s.exec(page) ?? [];
  const keys = [...told.matchAll(/`([^`]+)`/g)].map(([, key]) => key ?? '');
  expect(keys).toEqual(expect.arrayContaining(['enter', 'Return', 'ArrowUp', 'page_down']));
  for (const key of keys) expect(keyStroke(key), key).not.toBeNull();
});

it('names the version of the nats command that it was tested with', () => {
  const { module, version } = TOOLS.nats;
  expect(page).toContain(`go install ${module}@v${version}`);
});

it('calls commands, with options, that are there', () => {
  const program = gymbusCommand();
  const shell = blocksOf(page).flatMap(({ language, text }) => (language === 'sh' ? text.split('\n') : []));
  const inline = [...page.matchAll(/`(?:npx )?(gymbus [^`\n]+)`/g)].map(([, call]) => call ?? '');
  const calls = [...shell.flatMap((line) => /npx (gymbus [^#|"']+)/.exec(line)?.[1] ?? []), ...inline];
  expect(calls.length).toBeGreaterThan(30);
  for (const call of calls) {
    const words = call
      .replace(/\s*[\\)"].*$/, '')
      .split(/\s+/)
      .slice(1);
    let command: Command = program;
    for (const word of words) command = command.commands.find((inner) => inner.name() === word) ?? command;
    if (!words[0]?.startsWith('-')) expect(command, call).not.toBe(program);
    const known = ['--help', '--version', ...command.options.map(({ long }) => long)];
    for (const word of words) if (word.startsWith('--')) expect(known, call).toContain(word);
  }
});

describe('its examples', () => {
  const example = (schema: string): string => {
    const found = blocksOf(page).filter(({ language, text }) => language === 'json' && text.includes(`"${schema}"`));
    expect(found).toHaveLength(1);
    return found[0]?.text ?? '';
  };

  it('of a job is one that a runner plays', () => {
    const parsed = parseJob(Buffer.from(example('gymbus.job.v1')));
    if (parsed.kind !== 'job') throw new Error(JSON.stringify(parsed));
    expect(checkJob(parsed.job)).toEqual([]);
  });

  it('of a result has every field', () => {
    expect(Object.keys(JSON.parse(example('gymbus.result.v1'))).sort()).toEqual(Object.keys(Result.shape).sort());
  });
});

describe('its links lead somewhere', () => {
  const prose = page.replaceAll(/```[\s\S]*?```/g, '');
  const links = [...new Set([...prose.matchAll(/\]\(([^)]+)\)/g)].map(([, target]) => target ?? ''))];
  const headings = [...page.matchAll(/^#+ (.+)$/gm)].map(
    ([, heading]) =>
      `#${(heading ?? '')
        .toLowerCase()
        .replaceAll(/[^a-z0-9 -]/g, '')
        .replaceAll(' ', '-')}`,
  );

  it.each(links.filter((link) => !link.startsWith('http')))('%s', (link) => {
    if (link.startsWith('#')) expect(headings).toContain(link);
    else expect(existsSync(path.resolve(path.dirname(readmeFile), link))).toBe(true);
  });

  it.each([
    ...new Set(
      [...page.matchAll(/`((?:infra|test|functions|schemas|runner|images)\/[\w./-]+\.\w+)`/g)].map(
        ([, file]) => file ?? '',
      ),
    ),
  ])('`%s` is there', (file) => expect(existsSync(path.resolve(path.dirname(readmeFile), file))).toBe(true));
});

it('names the metrics that there are', async () => {
  const told = rowsBelow(page, 'metrics').flatMap(([name]) => names(name));
  const text = await new Metrics(() => sampleStatus()).text();
  expect(told.sort()).toEqual([...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name).sort());
});
