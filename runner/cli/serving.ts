import type { RunnerStatus } from '../../schemas/index.ts';
import { readRunners } from '../bus/heartbeat.ts';
import type { Bus } from '../bus/index.ts';
import type { Patience } from '../bus/stored.ts';

/** Why jobs for an image wait, beyond every replica being busy; null when some live runner takes them. */
export function whyWaiting(image: string, runners: readonly RunnerStatus[]): string | null {
  const serving = runners.filter(({ images }) => images.some(({ name }) => name === image));
  if (serving.some(({ state }) => state === 'running')) return null;
  const [one] = serving;
  return one ? `runner ${one.runner} is ${one.state}: ${one.reason}` : `no live runner serves ${image}`;
}

/** The same of several images, each reason once, in one line; empty when all are taken. */
export async function troubleOf(bus: Bus, images: readonly string[], patience: Patience): Promise<string> {
  const runners = await readRunners(bus, patience);
  return [...new Set(images.flatMap((image) => whyWaiting(image, runners) ?? []))].join(', ');
}

/** What whoever publishes jobs for these images should know; none when all are taken. Each names its image. */
export function servingWarnings(images: readonly string[], runners: readonly RunnerStatus[]): string[] {
  const served = [...new Set(runners.flatMap((runner) => runner.images.map(({ name }) => name)))].sort();
  return images.flatMap((image) => {
    const why = whyWaiting(image, runners);
    if (why === null) return [];
    const others = served.length > 0 ? `live runners serve ${served.join(', ')}` : 'no runner is live';
    const more = served.includes(image) ? '' : ` (${others})`;
    return [`${why}${more}: the jobs for ${image} wait until one takes them`];
  });
}
