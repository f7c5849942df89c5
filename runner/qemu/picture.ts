/** An uncompressed picture: rows of red, green, blue, a byte each. */
export interface Picture {
  width: number;
  height: number;
  pixels: Buffer;
}

/** Pixels; what lies inside changes by itself (a clock) and proves nothing. */
export interface Region {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** A picture is worked on row by row: also an empty one has rows. */
const MOST_SIDE = 4_096;
const isSide = (pixels: number): boolean => pixels >= 1 && pixels <= MOST_SIDE;

/** Reads binary PPM (P6, 8 bits) as QEMU writes it. @throws on anything else, a file cut short included */
export function parsePpm(file: Buffer): Picture {
  const header = /^P6\s+(\d+)\s+(\d+)\s+255\s/.exec(file.subarray(0, 64).toString('latin1'));
  if (!header)
    throw new Error(`no PPM picture: it starts with ${JSON.stringify(file.subarray(0, 16).toString('latin1'))}`);
  const width = Number(header[1]);
  const height = Number(header[2]);
  if (!isSide(width) || !isSide(height))
    throw new Error(`PPM picture of ${width}x${height}: a side has 1 to ${MOST_SIDE} pixels`);
  const pixels = file.subarray(header[0].length);
  if (pixels.length !== width * height * 3) {
    throw new Error(`PPM picture of ${width}x${height} has ${pixels.length} bytes of pixels`);
  }
  return { width, height, pixels };
}

/** Whether two pictures are the same, volatile regions aside. */
export function same(a: Picture, b: Picture, volatile: readonly Region[]): boolean {
  if (a.width !== b.width || a.height !== b.height) return false;
  if (volatile.length === 0) return a.pixels.equals(b.pixels);
  for (let y = 0; y < a.height; y += 1) {
    for (const [from, to] of spans(y, a.width, volatile)) {
      if (a.pixels.compare(b.pixels, from, to, from, to) !== 0) return false;
    }
  }
  return true;
}

/** Share of pixels (0 to 1) that differ, volatile regions aside; 1 when the sizes differ. */
export function difference(a: Picture, b: Picture, volatile: readonly Region[]): number {
  if (a.width !== b.width || a.height !== b.height) return 1;
  let compared = 0;
  let differing = 0;
  for (let y = 0; y < a.height; y += 1) {
    for (const [from, to] of spans(y, a.width, volatile)) {
      compared += (to - from) / 3;
      if (a.pixels.compare(b.pixels, from, to, from, to) === 0) continue;
      for (let at = from; at < to; at += 3) {
        if (
          a.pixels[at] !== b.pixels[at] ||
          a.pixels[at + 1] !== b.pixels[at + 1] ||
          a.pixels[at + 2] !== b.pixels[at + 2]
        ) {
          differing += 1;
        }
      }
    }
  }
  return compared === 0 ? 0 : differing / compared;
}

/** Black but for a pointer and some glyphs: darker than this, and it is a screen without a desktop. */
const MAX_DARKNESS = 0.98;

export function isBlack(picture: Picture): boolean {
  return darkness(picture) > MAX_DARKNESS;
}

/** Share of pixels (0 to 1) as dark as a screen that is off. */
export function darkness(picture: Picture): number {
  const { pixels } = picture;
  let dark = 0;
  for (let at = 0; at < pixels.length; at += 3) {
    if ((pixels[at] ?? 0) + (pixels[at + 1] ?? 0) + (pixels[at + 2] ?? 0) < 12) dark += 1;
  }
  return dark / (pixels.length / 3);
}

/** Byte ranges of a row outside the regions. Regions of one row may touch or overlap. */
function spans(y: number, width: number, volatile: readonly Region[]): [number, number][] {
  const hidden = volatile
    .filter((region) => y >= region.y && y < region.y + region.height)
    .sort((one, other) => one.x - other.x);
  const row = y * width * 3;
  const result: [number, number][] = [];
  let from = 0;
  for (const region of hidden) {
    if (region.x > from) result.push([row + from * 3, row + Math.min(region.x, width) * 3]);
    from = Math.max(from, region.x + region.width);
  }
  if (from < width) result.push([row + from * 3, row + width * 3]);
  return result;
}

/** The picture as a binary PPM file. */
export function writePpm(picture: Picture): Buffer {
  return Buffer.concat([Buffer.from(`P6\n${picture.width} ${picture.height}\n255\n`), picture.pixels]);
}
