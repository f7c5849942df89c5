import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, it } from 'vitest';
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

it('leaves nothing behind when nothing was to be told', async () => {
  const stream = Object.assign(new PassThrough(), { isTTY: true, columns: 80 });
  const view = progressView('tool', stream as unknown as NodeJS.WriteStream);
  view.stop();
  stream.end();
  expect(await text(stream)).toBe('');
});
