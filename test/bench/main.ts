import { setMaxListeners } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { recipes } from '../../images/recipes.ts';
import { asCliError } from '../../runner/cli/explain.ts';
import { buildImages } from '../../runner/cli/images.ts';
import { ensureHostPackages, ensureTools } from '../../runner/cli/install.ts';
import { Interrupt } from '../../runner/cli/interrupt.ts';
import { table } from '../../runner/cli/table.ts';
import { readConfig } from '../../runner/host/config.ts';
import { costTable, episodeCost, mostPerMinute } from './breakdown.ts';
import { episodeFigures } from './episodes.ts';
import { faultTable } from './faults.ts';
import { type Figure, rounded } from './figure.ts';
import { fleetFigures } from './fleet.ts';
import { neighbourFigures, sicknessFigures } from './neighbours.ts';
import { replicaFigures } from './replicas.ts';
import { storageFigures } from './storage.ts';
import { sweep } from './sweep.ts';

const GROUPS = ['replicas', 'fleet', 'neighbours', 'faults', 'episodes', 'storage'] as const;

const FLEET = 1_024;
/** Of a model that is asked for the next action. */
const THINK_S = 2;
const IMAGE = 'debian-desktop';

const USAGE = `npm run bench -- [${GROUPS.join('|')}]... [--json FILE] [--sweep [--think S]] [--fleet N] [--image NAME]
--sweep: instead, the same episodes with K = 1, 2, 4, ... replicas in each group of one processor.
--think: seconds that a policy takes for each step of the sweep, ${THINK_S} by default.
--fleet: so many frozen desktops at once, ${FLEET} by default.
--image: what they are replicas of, ${IMAGE} by default; trajectories are played on that alone.
Prints each figure with its baseline of the same run, their ratio, and whether the goal is met.`;

/** @returns exit code: 0 when every goal is met */
export async function main(args: string[]): Promise<number> {
  try {
    return await runBench(args);
  } catch (error) {
    const explained = asCliError(error);
    if (explained === null) throw error;
    console.error(`gymbus: ${explained.message}`);
    return explained.exitCode;
  }
}

async function runBench(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    options: {
      ...{ json: { type: 'string' }, help: { type: 'boolean' } },
      ...{ sweep: { type: 'boolean' }, fleet: { type: 'string', default: String(FLEET) } },
      think: { type: 'string', default: String(THINK_S) },
      image: { type: 'string', default: IMAGE },
    },
    allowPositionals: true,
  });
  const unknown = positionals.find((name) => !GROUPS.some((group) => group === name));
  if (values.help || unknown !== undefined) {
    console.error(unknown === undefined ? USAGE : `there is no group ${unknown}\n${USAGE}`);
    return unknown === undefined ? 0 : 2;
  }
  const fleet = Number(values.fleet);
  if (!Number.isInteger(fleet) || fleet < 1) {
    console.error(`--fleet ${values.fleet}: must be a whole number from 1 on\n${USAGE}`);
    return 2;
  }
  const think = Number(values.think);
  if (!Number.isFinite(think) || think < 0) {
    console.error(`--think ${values.think}: must be a number of seconds from 0 on\n${USAGE}`);
    return 2;
  }
  if (!recipes.some(({ name }) => name === values.image)) {
    console.error(`--image ${values.image}: recipes are ${recipes.map(({ name }) => name).join(', ')}\n${USAGE}`);
    return 2;
  }
  const wanted = new Set(positionals.length > 0 ? positionals : GROUPS);
  using interrupt = new Interrupt();
  const { signal } = interrupt;
  // Each replica that plays waits for it, too.
  setMaxListeners(0, signal);
  const { cacheDir } = readConfig(process.env);
  await ensureHostPackages(signal);
  await ensureTools(['nats-server', 'versitygw'], cacheDir, signal);
  const [image] = await buildImages([values.image], cacheDir, signal);
  if (!image) throw new Error('the image was not built');

  if (values.sweep) {
    const { rows, summary } = await sweep(image, think * 1_000, signal);
    console.log(`${table(rows)}\n${summary}`);
    return 0;
  }
  const figures: Figure[] = [];
  if (wanted.has('replicas')) figures.push(...(await replicaFigures(image, cacheDir, signal)));
  if (wanted.has('fleet')) figures.push(...(await fleetFigures(image, fleet, signal)));
  if (wanted.has('neighbours')) {
    figures.push(...(await neighbourFigures(image, signal)), ...(await sicknessFigures(image, signal)));
  }
  if (wanted.has('faults')) {
    console.log(`Faults of a guest, median of three:\n${table(await faultTable(image, signal))}\n`);
  }
  if (wanted.has('episodes') && image.name === IMAGE) {
    const cost = await episodeCost(image, cacheDir, signal);
    console.log(`Where the processor time of a ten-step episode goes:\n${table(costTable(cost))}`);
    console.log(`The cores of this host carry ${rounded(mostPerMinute(cost))} of them a minute at most.\n`);
    figures.push(...(await episodeFigures(image, cacheDir, signal)));
  }
  if (wanted.has('storage')) figures.push(...(await storageFigures()));
  print(figures);
  if (values.json) await writeFile(values.json, `${JSON.stringify(figures, null, 2)}\n`);
  return figures.every(({ met }) => met) ? 0 : 1;
}

function print(figures: readonly Figure[]): void {
  console.log(
    table(
      figures.map(({ figure, value, unit, baseline, ratio, goal, met }) => ({
        figure,
        value: `${rounded(value)} ${unit}`,
        baseline: baseline === null ? null : String(rounded(baseline)),
        ratio: ratio === null ? null : String(rounded(ratio)),
        goal,
        met: met ? 'yes' : 'NO',
      })),
    ),
  );
}
