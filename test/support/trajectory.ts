import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import { findRecipe } from '../../images/recipes.ts';
import { type Picture, same } from '../../runner/qemu/picture.ts';
import { attemptFiles, Manifest, type Result, Step } from '../../schemas/index.ts';
import { decodePng } from './png.ts';

const { volatile_regions: CHANGING, resolution } = findRecipe('debian-desktop');

/** A step as somebody reads it who has nothing but the bucket. */
export interface PlayedStep {
  step: Step;
  picture: Picture;
}

/**
 * Reads the trajectory of a result, and checks each of its pictures: listed in the manifest, the same bytes as both say, as large as
 * the screen.
 * @param get an object by its key
 */
export async function readPlayed(
  result: Result,
  get: (key: string) => Promise<Buffer>,
): Promise<{ manifest: Manifest; steps: PlayedStep[] }> {
  const prefix = (result.trajectory ?? '').replace(/^s3:\/\/[^/]+\//, '');
  const manifest = Manifest.parse(JSON.parse((await get(prefix + attemptFiles.manifest)).toString()));
  const objects = new Map(manifest.objects.map((object) => [object.key, object]));
  const lines = objects.has(prefix + attemptFiles.trajectory) ? await get(prefix + attemptFiles.trajectory) : '';
  const steps: PlayedStep[] = [];
  for (const line of lines.toString().split('\n').filter(Boolean)) {
    const step = Step.parse(JSON.parse(line));
    const { screenshot } = step.observation;
    if (screenshot === null) throw new Error(`step ${step.step} has no picture`);
    const png = await get(screenshot.key);
    const found = { bytes: png.length, sha256: createHash('sha256').update(png).digest('hex') };
    const { bytes, sha256 } = screenshot;
    expect(found, screenshot.key).toEqual({ bytes, sha256 });
    expect(objects.get(screenshot.key), screenshot.key).toMatchObject({ bytes, sha256, content_type: 'image/png' });
    const picture = decodePng(png);
    expect({ width: picture.width, height: picture.height }).toEqual(resolution);
    steps.push({ step, picture });
  }
  return { manifest, steps };
}

/** Whether two pictures show the same, the panel's clock aside. */
export function looksTheSame(a: PlayedStep, b: PlayedStep): boolean {
  return same(a.picture, b.picture, CHANGING);
}

/** The smallest rectangle with all that differs between two pictures of one size, the panel's clock included, in words. */
export function whereDifferent({ picture: a }: PlayedStep, { picture: b }: PlayedStep): string {
  const [xs, ys]: [number[], number[]] = [[], []];
  for (let at = 0; at < a.pixels.length; at += 3) {
    if (a.pixels.compare(b.pixels, at, at + 3, at, at + 3) === 0) continue;
    xs.push((at / 3) % a.width);
    ys.push(Math.floor(at / 3 / a.width));
  }
  const range = (values: number[]): string =>
    values.length === 0
      ? 'none'
      : `${values.reduce((x, y) => Math.min(x, y))} to ${values.reduce((x, y) => Math.max(x, y))}`;
  return `${xs.length} pixels, x ${range(xs)}, y ${range(ys)}`;
}
