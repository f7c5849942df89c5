import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { click, drag, hotkey, icon, key, PANEL, script, shell, slow, type } from '../../infra/demo/desktop.ts';
import type { TrajectoryJobInput } from '../../schemas/index.ts';
import { openDesktopGym } from '../support/desktop-gym.ts';
import type { TestGym } from '../support/gym.ts';
import { available } from '../support/requirement.ts';
import { expectSettled, settled } from '../support/settled.ts';
import { looksTheSame, type PlayedStep, readPlayed, whereDifferent } from '../support/trajectory.ts';

const PLAY_MS = 8 * 60_000;
const MOST_BYTES = 64 << 20;
const FREE_SPOT = { x: 800, y: 480 };

/** Windows, dialogs, menus, a text, a drop: most of what may look different from time to time. */
const SCRIPTS: Record<string, Pick<TrajectoryJobInput, 'setup' | 'policy'>> = {
  files: {
    setup: [shell('mkdir ~/Desktop/Archive && echo 1 > ~/Desktop/receipt.txt')],
    policy: script(
      { type: 'click', ...icon(1), button: 'right' },
      key('escape'),
      slow(drag(icon(1), icon(0))),
      slow(click(PANEL.fileManager), 2),
      { type: 'move', x: 478, y: 215 },
      slow(hotkey('ctrl', 'shift', 'n')),
      type('Reports'),
      slow(key('enter')),
      { type: 'click', ...FREE_SPOT, button: 'right' },
      key('escape'),
      slow(hotkey('alt', 'f4')),
    ),
  },
  text: {
    setup: [],
    policy: script(
      slow(click(PANEL.textEditor), 3),
      type('The quick brown fox jumps over the lazy dog.\n'.repeat(6)),
      slow(type('Grüße, 漢字, 3 €\n'), 2),
      drag({ x: 300, y: 160 }, { x: 480, y: 190 }),
      { type: 'scroll', x: 640, y: 300, dy: 3 },
      slow(hotkey('ctrl', 's'), 3),
      type('fox.txt'),
      slow(key('enter')),
    ),
  },
};

describe.skipIf(!available('vm'))('the same script and seed, played twice', () => {
  let gym: TestGym;
  const name = (script: string, time: number): string => `${script}-${time}`;
  const jobOf = (job_id: string, played: Pick<TrajectoryJobInput, 'setup' | 'policy'>): TrajectoryJobInput => ({
    ...{ schema: 'gymbus.job.v1', batch_id: 'twice', job_id, image: 'debian-desktop', instruction: 'As before.' },
    ...{ limits: { max_steps: 40 }, seed: 7, ...played },
  });
  const jobs = new Map(
    Object.entries(SCRIPTS).flatMap(([script, played]) =>
      [1, 2].map((time): [string, TrajectoryJobInput] => [name(script, time), jobOf(name(script, time), played)]),
    ),
  );

  beforeAll(async () => {
    gym = await openDesktopGym('determinism', 4);
    for (const job of jobs.values()) await gym.publish(job);
  });
  afterAll(() => gym?.[Symbol.asyncDispose]());

  async function played(job: TrajectoryJobInput | undefined): Promise<PlayedStep[]> {
    if (!job) throw new Error('no such job');
    await settled(gym, job, PLAY_MS);
    const result = await expectSettled(gym, job, { status: 'completed', score: null, stop_reason: 'done' });
    return (await readPlayed(result, (key) => gym.store.get(key, MOST_BYTES))).steps;
  }

  it.each(Object.keys(SCRIPTS))(
    '%s: every picture is the same',
    async (script) => {
      const first = await played(jobs.get(name(script, 1)));
      const second = await played(jobs.get(name(script, 2)));
      expect(first.length).toBeGreaterThan(10);
      expect(second.map(({ step }) => step.actions)).toEqual(first.map(({ step }) => step.actions));
      const different = first.flatMap((step, index) => {
        const other = second[index];
        if (other && looksTheSame(step, other)) return [];
        const where = other ? whereDifferent(step, other) : 'there is none';
        return [`step ${step.step.step}: ${JSON.stringify(step.step.actions)}: ${where}`];
      });
      expect(different, 'steps that look different').toEqual([]);
    },
    PLAY_MS,
  );
});
