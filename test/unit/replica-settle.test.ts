import { describe, expect, it } from 'vitest';
import type { Load } from '../../runner/qemu/processors.ts';
import { judge } from '../../runner/qemu/quiet.ts';
import type { ScreenPicture } from '../../runner/qemu/screen.ts';
import { type Settling, settle } from '../../runner/replica/settle.ts';

const never = new AbortController().signal;
const width = 4;

interface Host {
  accounts?: boolean;
  /** Of the time at work, the share spent waiting for a turn. */
  waitedShare?: number;
}

/** A desktop that works and changes its picture as told by the time since it was made. */
class Desktop {
  pictures = 0;
  disposed = 0;
  readonly #start = performance.now();
  readonly #workMs: (atMs: number) => number;
  readonly #shade: (atMs: number) => number;
  readonly #host: Host;

  /** @param workMs time at work, or waiting for a turn to, until then @param shade of the picture */
  constructor(workMs: (atMs: number) => number, shade: (atMs: number) => number, host: Host = {}) {
    this.#workMs = workMs;
    this.#shade = shade;
    this.#host = host;
  }

  get settling(): Settling {
    return {
      screen: { picture: async () => this.#picture() },
      processors: { load: async () => this.#load() },
    } as unknown as Settling;
  }

  async settle(limits: { minMs: number; maxMs: number }, clock: { x: number; width: number } | null = null) {
    const regions = clock ? [{ ...clock, y: 0, height: 1 }] : [];
    const picture = await settle(this.settling, regions, limits, never);
    expect(this.disposed, 'all but the one returned').toBe(this.pictures - (picture === null ? 0 : 1));
    return { done: picture !== null, picture, tookMs: performance.now() - this.#start };
  }

  #picture(): ScreenPicture {
    this.pictures += 1;
    const pixels = Buffer.alloc(width * 3);
    // Only the last pixel ever changes.
    pixels.fill(this.#shade(performance.now() - this.#start), (width - 1) * 3);
    const dispose = (): void => {
      this.disposed += 1;
    };
    return { width, height: 1, pixels, [Symbol.dispose]: dispose };
  }

  #load(): Load | null {
    const { accounts = true, waitedShare = 0 } = this.#host;
    if (!accounts) return null;
    const atMs = performance.now() - this.#start;
    const workMs = this.#workMs(atMs);
    const waitedMs = workMs * waitedShare;
    return { ranMs: workMs - waitedMs, waitedMs, asleep: this.#workMs(atMs + 1) === workMs };
  }
}

const idle = (): number => 0;
const plain = (): number => 7;

describe('settling', () => {
  it('takes no longer than asked for when nothing happens', async () => {
    const desktop = new Desktop(idle, plain);
    const { done, tookMs } = await desktop.settle({ minMs: 300, maxMs: 5_000 });
    expect(done).toBe(true);
    expect(tookMs).toBeGreaterThanOrEqual(300);
    expect(tookMs).toBeLessThan(600);
    expect(desktop.pictures).toBe(2);
  });

  it('returns the picture it shows at rest', async () => {
    const desktop = new Desktop(idle, (atMs) => (atMs < 200 ? Math.floor(atMs / 5) : 222));
    const { picture } = await desktop.settle({ minMs: 0, maxMs: 5_000 });
    expect([...(picture?.pixels ?? [])].slice(-3)).toEqual([222, 222, 222]);
  });

  it('waits for a program that shows nothing while it starts', async () => {
    const desktop = new Desktop(
      (atMs) => Math.min(atMs, 700),
      (atMs) => (atMs < 690 ? 7 : 9),
    );
    const { done, tookMs } = await desktop.settle({ minMs: 200, maxMs: 5_000 });
    expect(done).toBe(true);
    expect(tookMs).toBeGreaterThan(790);
    expect(desktop.pictures).toBeLessThanOrEqual(4);
  });

  it('sees what follows a short rest, as a button that is let go after a quarter of a second', async () => {
    const desktop = new Desktop(
      (atMs) => (atMs < 250 ? 0 : Math.min(atMs - 250, 60)),
      (atMs) => (atMs < 300 ? 7 : 9),
    );
    const { tookMs } = await desktop.settle({ minMs: 300, maxMs: 5_000 });
    expect(tookMs).toBeGreaterThan(600);
  });

  it('waits for a picture that changes with little work', async () => {
    const { done, tookMs } = await new Desktop(idle, (atMs) => Math.min(100, Math.floor(atMs / 5))).settle({
      minMs: 0,
      maxMs: 5_000,
    });
    expect(done).toBe(true);
    expect(tookMs).toBeGreaterThan(500);
  });

  it('knows by the picture alone where the host gives no account', async () => {
    const desktop = new Desktop(idle, (atMs) => (atMs < 400 ? Math.floor(atMs / 5) : 7), { accounts: false });
    const { done, tookMs } = await desktop.settle({ minMs: 0, maxMs: 5_000 });
    expect(done).toBe(true);
    expect(tookMs).toBeGreaterThan(400);
  });

  it('ends in time with a desktop that never rests, and says so', async () => {
    const busy = await new Desktop((atMs) => atMs, plain).settle({ minMs: 100, maxMs: 400 });
    const moving = await new Desktop(idle, (atMs) => Math.floor(atMs / 5) % 200).settle({ minMs: 100, maxMs: 400 });
    for (const { done, tookMs } of [busy, moving]) {
      expect(done).toBe(false);
      expect(tookMs).toBeLessThan(900);
    }
  });

  it('has patience in time that the guest got: the same guest on a busy host takes longer, and no less is waited for', async () => {
    const desktop = new Desktop((atMs) => Math.min(atMs, 1_200), plain, { waitedShare: 0.8 });
    const { done, tookMs } = await desktop.settle({ minMs: 100, maxMs: 500 });
    expect(done).toBe(true);
    expect(tookMs).toBeGreaterThan(1_300);
  });

  it('loses patience with a host that gives the guest nothing', async () => {
    const desktop = new Desktop((atMs) => atMs, plain, { waitedShare: 1 });
    const { done, tookMs } = await desktop.settle({ minMs: 100, maxMs: 200 });
    expect(done).toBe(false);
    expect(tookMs).toBeGreaterThan(1_200);
    expect(tookMs).toBeLessThan(1_600);
  });

  it('does not look at the clock', async () => {
    const { done } = await new Desktop(idle, (atMs) => Math.floor(atMs / 5) % 200).settle(
      { minMs: 0, maxMs: 2_000 },
      { x: width - 1, width: 1 },
    );
    expect(done).toBe(true);
  });

  it('ends with its signal', async () => {
    const controller = new AbortController();
    const settling = settle(
      new Desktop((atMs) => atMs, plain).settling,
      [],
      { minMs: 0, maxMs: 60_000 },
      controller.signal,
    );
    setTimeout(() => controller.abort(), 50);
    await expect(settling).rejects.toThrow(/abort/);
  });
});

describe('a stretch of time', () => {
  const load = (ranMs: number, asleep = true): Load => ({ ranMs, waitedMs: 0, asleep });

  it('is quiet when it was long enough, with little work, and all sleep at its end', () => {
    expect(judge(load(5), load(12), 100, 100)).toBe('quiet');
    expect(judge(load(5), load(12), 99, 100)).toBe('unsure');
  });

  it('is not known while one waits for its turn: the wait is not booked yet', () => {
    expect(judge(load(5), load(5, false), 100, 100)).toBe('unsure');
    expect(judge(load(5), load(5, false), 900, 100)).toBe('unsure');
  });

  it('is busy when more was worked than in a quiet one, however long it was', () => {
    expect(judge(load(5), load(46), 20, 100)).toBe('busy');
    expect(judge(load(5), load(46), 900, 100)).toBe('busy');
    expect(judge(load(5), load(8), 5, 5)).toBe('quiet');
  });
});
