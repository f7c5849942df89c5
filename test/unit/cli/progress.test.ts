import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { progressView } from '../../../runner/cli/progress.ts';

it('writes a plain line whenever the phase changes, with what a person reads', async () => {
  const stream = new PassThrough();
  const view = progressView('image', stream as unknown as NodeJS.WriteStream);
  view.report({ phase: 'root', fraction: 0.1, message: 'copying the package tree' });
  view.report({ phase: 'root', fraction: 0.2, message: 'copying the package tree: half' });
  view.report({ phase: 'disk', fraction: null, message: '' });
  view.stop();
  stream.end();
  expect(await text(stream)).toBe('image: copying the package tree\nimage: disk\n');
});

it('says once a minute that a long phase lasts', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  const stream = new PassThrough();
  const view = progressView('runner', stream as unknown as NodeJS.WriteStream);
  for (let second = 0; second <= 150; second += 1) {
    view.report({ phase: 'warming', fraction: second / 1_000, message: 'warming up' });
    vi.advanceTimersByTime(1_000);
  }
  view.report({ phase: 'saving', fraction: 0.9, message: '' });
  vi.useRealTimers();
  stream.end();
  const said = ['warming up', 'warming up, for 1 min so far', 'warming up, for 2 min so far', 'saving'];
  expect(await text(stream)).toBe(said.map((line) => `runner: ${line}\n`).join(''));
});

/** A terminal that remembers what it was sent. */
class TerminalStream extends PassThrough {
  readonly isTTY = true;
  readonly columns = 120;
  sent = '';

  constructor() {
    super();
    this.on('data', (data) => {
      this.sent += data;
    });
  }

  /** The lines drawn, one over the other. */
  get drawn(): string[] {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out
    return this.sent.split(/(?:\x1b(?:\[[0-9;?]*[A-Za-z]|[78])|\n)+/).filter((line) => line !== '');
  }

  view(title: string) {
    return progressView(title, this as unknown as NodeJS.WriteStream);
  }
}

describe('on a terminal', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it('leaves nothing behind when nothing was to be told', () => {
    const terminal = new TerminalStream();
    terminal.view('tool').stop();
    expect(terminal.sent).toBe('');
  });

  it('shows no percentage of work of which nobody knows how much there is', () => {
    const terminal = new TerminalStream();
    const view = terminal.view('tool nats');
    for (let packages = 0; packages < 300; packages += 100) {
      view.report({ phase: 'compiling', fraction: null, message: `${packages} packages compiled` });
      vi.advanceTimersByTime(1_000);
    }
    view.done();
    view.stop();
    expect(terminal.drawn[0]).toBe('tool nats  0s  0 packages compiled');
    expect(terminal.drawn.at(-1)).toBe('tool nats  3s  done');
    expect(terminal.drawn.filter((line) => /[%░█]/.test(line))).toEqual([]);
  });

  it('shows a bar from the first fraction on, which never goes back', () => {
    const terminal = new TerminalStream();
    const view = terminal.view('image');
    view.report({ phase: 'packages', fraction: null, message: 'looking' });
    vi.advanceTimersByTime(1_000);
    view.report({ phase: 'root', fraction: 0.5, message: 'unpacking' });
    vi.advanceTimersByTime(1_000);
    view.report({ phase: 'disk', fraction: null, message: '' });
    vi.advanceTimersByTime(1_000);
    view.stop();
    expect(terminal.drawn[0]).toBe('image  0s  looking');
    expect(terminal.drawn).toContain(`image [${'█'.repeat(12)}${'░'.repeat(12)}] 50%  1s  unpacking`);
    expect(terminal.drawn.at(-1)).toBe(`image [${'█'.repeat(12)}${'░'.repeat(12)}] 50%  3s  disk`);
  });

  it('writes nothing while what it shows is the same', () => {
    const terminal = new TerminalStream();
    const view = terminal.view('publish');
    view.report({ phase: 'publishing', fraction: 0.1, message: 'some' });
    vi.advanceTimersByTime(60_000);
    // Once a second, for the time beside it.
    expect(terminal.drawn.length).toBeLessThanOrEqual(62);
    const { length } = terminal.sent;
    vi.advanceTimersByTime(400);
    expect(terminal.sent.length).toBe(length);
    view.stop();
  });
});
