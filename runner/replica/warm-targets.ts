/**
 * How many replicas of each image are kept warm: pure, so that what the pool aims at can be tested without one.
 *
 * As many hot ones as may act are worth keeping on a host, to take their places, and they are shared out among the images by their demand:
 * what waits in the queue and what was claimed in the last minute. Frozen ones are the stock behind them, from which hot ones are made
 * ahead of demand. An image that is not asked for gives its hot ones back first, and keeps two frozen ones; after longer, one, for a
 * runner must hold a replica before it may ask for a job.
 *
 * What does not fit is taken in this order: hot ones of images without jobs waiting, then hot ones of the others, then frozen ones, those
 * of images without jobs first. A hot one gives back 50 to 80 MiB and costs the next claim a gate, 0.25 s of a processor; a frozen one gives
 * 15 MiB and costs a clone, 0.1 s: the hot one gives more than twice as much for what is lost, and the picture of a frozen one is there at once.
 */
export interface ImageDemand {
  name: string;
  hotBytes: number;
  frozenBytes: number;
  /** Jobs in the queue that nobody has begun. */
  waiting: number;
  /** In the last minute. */
  claims: number;
  /** Since it was last asked for: since a job waited or was claimed, or the pool was opened. */
  idleMs: number;
}

export interface WarmBudget {
  memoryBytes: number;
  /** Hot replicas worth having on this host: as many as may act. */
  hot: number;
  /** Frozen ones behind them. */
  frozen: number;
  /** Kept of each image whatever the demand, where somebody has set it. */
  setHot?: number | undefined;
  setFrozen?: number | undefined;
  /** When an image is not asked for any more, and when it is not thought that it will be. */
  hotIdleMs?: number | undefined;
  frozenIdleMs?: number | undefined;
  /** Part that is kept of what demand asks for, 0 to 1, under pressure. */
  keep: number;
}

export interface WarmTarget {
  hot: number;
  frozen: number;
}

/** From here on an image is not asked for: several times the length of an episode. */
export const HOT_IDLE_MS = 5 * 60_000;
/** And from here on it is not thought that it will be. */
export const FROZEN_IDLE_MS = 60 * 60_000;
const FEW_FROZEN = 2;

/** Never above the budget; each image with jobs waiting gets at least one replica if one fits, and so do the others after them. */
export function warmTargets(images: readonly ImageDemand[], budget: WarmBudget): Map<string, WarmTarget> {
  const wanted = wish(images, budget);
  // The neediest first: what is left for the last may be nothing.
  const order = images.toSorted((a, b) => need(b) - need(a) || a.idleMs - b.idleMs || (a.name < b.name ? -1 : 1));
  const targets = new Map<string, WarmTarget>(order.map(({ name }) => [name, { hot: 0, frozen: 0 }]));
  let left = budget.memoryBytes;
  const grant = (image: ImageDemand, kind: 'hot' | 'frozen', most: number): void => {
    const bytes = kind === 'hot' ? image.hotBytes : image.frozenBytes;
    const count = Math.min(Math.max(0, most), Math.max(0, Math.floor(left / bytes)));
    left -= count * bytes;
    const target = targets.get(image.name);
    if (target) target[kind] += count;
  };
  const each = (grantTo: (image: ImageDemand, want: WarmTarget, have: WarmTarget) => void): void => {
    for (const image of order) {
      const have = targets.get(image.name);
      const want = wanted.get(image.name);
      if (have && want) grantTo(image, want, have);
    }
  };
  // The law: one of each. It is frozen until there is room for more.
  each((image) => grant(image, 'frozen', 1));
  each((image, want, have) => grant(image, 'frozen', Math.max(1, want.frozen) - have.frozen));
  each((image, want) => grant(image, 'hot', want.hot));
  for (const [name, target] of targets) {
    const want = wanted.get(name);
    // The one of the law is hot where hot ones are all that is wanted.
    if (want?.frozen === 0 && target.hot > 0) target.frozen = 0;
  }
  return targets;
}

const need = ({ waiting, claims }: ImageDemand): number => (waiting > 0 ? 1e9 + waiting : claims);

/** What demand asks for, memory aside. */
function wish(images: readonly ImageDemand[], budget: WarmBudget): Map<string, WarmTarget> {
  const { hotIdleMs = HOT_IDLE_MS, frozenIdleMs = FROZEN_IDLE_MS } = budget;
  const asked = images.filter((image) => image.waiting > 0 || image.idleMs < hotIdleMs);
  const hot = shareOut(asked, budget.hot);
  const frozen = shareOut(asked, budget.frozen);
  const kept = (count: number): number => Math.floor(count * budget.keep);
  return new Map(
    images.map((image) => {
      const idleFrozen = image.idleMs < frozenIdleMs ? FEW_FROZEN : 1;
      const wantsFrozen = asked.includes(image) ? (frozen.get(image.name) ?? 0) : Math.min(idleFrozen, budget.frozen);
      return [
        image.name,
        {
          hot: kept(budget.setHot ?? hot.get(image.name) ?? 0),
          frozen: kept(budget.setFrozen ?? wantsFrozen),
        },
      ];
    }),
  );
}

/** Whole parts of a number, by demand; each that has jobs waiting gets one, also when there are more of them than there is to share. */
function shareOut(images: readonly ImageDemand[], total: number): Map<string, number> {
  const sure = (image: ImageDemand): number => (image.waiting > 0 && total > 0 ? 1 : 0);
  const spare = Math.max(0, total - images.reduce((sum, image) => sum + sure(image), 0));
  // An image without demand that was asked for not long ago has a little weight: it may be asked for again.
  const weights = images.map(({ waiting, claims }) => 1 + waiting + claims);
  const sum = weights.reduce((a, b) => a + b, 0);
  const exact = weights.map((weight) => (spare * weight) / sum);
  const whole = exact.map(Math.floor);
  let rest = spare - whole.reduce((a, b) => a + b, 0);
  const byRemainder = exact.map((part, index) => ({ part: part % 1, index })).sort((a, b) => b.part - a.part);
  for (const { index } of byRemainder) {
    if (rest <= 0) break;
    whole[index] = (whole[index] ?? 0) + 1;
    rest -= 1;
  }
  return new Map(images.map((image, index) => [image.name, sure(image) + (whole[index] ?? 0)]));
}
