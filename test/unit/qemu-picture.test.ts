import { randomBytes } from 'node:crypto';
import { crc32, inflateSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { darkness, difference, isBlack, type Picture, parsePpm, same, writePpm } from '../../runner/qemu/picture.ts';
import { encodePng } from '../../runner/qemu/png.ts';

const size = { width: 12, height: 8 };
const grey = (): Picture => ({ ...size, pixels: Buffer.alloc(size.width * size.height * 3, 100) });
const dot = (picture: Picture, x: number, y: number): Picture => {
  picture.pixels[(y * picture.width + x) * 3 + 1] = 200;
  return picture;
};

const region = fc.record({
  x: fc.integer({ min: 0, max: 14 }),
  y: fc.integer({ min: 0, max: 9 }),
  width: fc.integer({ min: 1, max: 14 }),
  height: fc.integer({ min: 1, max: 9 }),
});

describe('picture', () => {
  it('reads back what it writes', () => {
    const picture = dot(grey(), 3, 4);
    expect(parsePpm(writePpm(picture))).toEqual(picture);
  });

  it('refuses a file cut short and one of another kind', () => {
    expect(() => parsePpm(writePpm(grey()).subarray(0, -1))).toThrow('12x8 has 287 bytes of pixels');
    expect(() => parsePpm(Buffer.from('\u0089PNG'))).toThrow('no PPM picture');
    expect(() => parsePpm(Buffer.alloc(0))).toThrow('no PPM picture');
  });

  it.each(['0 4294967295', '4294967295 0', '0 0', '4097 1', '1 4097'])('refuses one of %s pixels', (size) => {
    expect(() => parsePpm(Buffer.from(`P6\n${size}\n255\n`))).toThrow('a side has 1 to 4096 pixels');
  });

  it('sees one differing pixel anywhere, unless a region hides it', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 11 }),
        fc.integer({ min: 0, max: 7 }),
        fc.array(region, { maxLength: 4 }),
        (x, y, regions) => {
          const hidden = regions.some((it) => x >= it.x && x < it.x + it.width && y >= it.y && y < it.y + it.height);
          expect(same(grey(), dot(grey(), x, y), regions)).toBe(hidden);
          expect(difference(grey(), dot(grey(), x, y), regions) > 0).toBe(!hidden);
        },
      ),
    );
  });

  it('counts the share of what differs among what is compared', () => {
    expect(difference(grey(), dot(grey(), 0, 0), [])).toBeCloseTo(1 / 96);
    expect(difference(grey(), dot(grey(), 0, 0), [{ x: 0, y: 1, width: 12, height: 7 }])).toBeCloseTo(1 / 12);
  });

  it('finds pictures of different sizes wholly different', () => {
    const other = { width: 8, height: 12, pixels: grey().pixels };
    expect(same(grey(), other, [])).toBe(false);
    expect(difference(grey(), other, [])).toBe(1);
  });

  it('knows a dark screen', () => {
    const black = { ...size, pixels: Buffer.alloc(288) };
    expect(darkness(black)).toBe(1);
    expect(darkness(dot(black, 1, 1))).toBeCloseTo(95 / 96);
    expect(darkness(grey())).toBe(0);
    expect([isBlack({ ...size, pixels: Buffer.alloc(288) }), isBlack(grey())]).toEqual([true, false]);
  });
});

describe('png', () => {
  /** Reads an RGB PNG back, by its specification. */
  function decode(file: Buffer): Picture {
    expect(file.subarray(0, 8).toString('hex')).toBe('89504e470d0a1a0a');
    const chunks: Record<string, Buffer> = {};
    for (let at = 8; at < file.length; ) {
      const length = file.readUInt32BE(at);
      const body = file.subarray(at + 4, at + 8 + length);
      expect(file.readUInt32BE(at + 8 + length)).toBe(crc32(body));
      chunks[body.subarray(0, 4).toString('latin1')] = body.subarray(4);
      at += 12 + length;
    }
    expect(Object.keys(chunks)).toEqual(['IHDR', 'IDAT', 'IEND']);
    const width = chunks.IHDR?.readUInt32BE(0) ?? 0;
    const height = chunks.IHDR?.readUInt32BE(4) ?? 0;
    expect(chunks.IHDR?.subarray(8).toString('hex')).toBe('0802000000');
    const rows = inflateSync(chunks.IDAT ?? Buffer.alloc(0));
    const pixels = Buffer.concat(
      Array.from({ length: height }, (_, y) => {
        const row = rows.subarray(y * (width * 3 + 1), (y + 1) * (width * 3 + 1));
        expect(row[0]).toBe(0);
        return row.subarray(1);
      }),
    );
    return { width, height, pixels };
  }

  it('holds every pixel', async () => {
    const picture = { width: 37, height: 11, pixels: randomBytes(37 * 11 * 3) };
    expect(decode(await encodePng(picture))).toEqual(picture);
  });

  it('gives equal pictures equal bytes', async () => {
    expect(await encodePng(grey())).toEqual(await encodePng(grey()));
    expect(await encodePng(grey())).not.toEqual(await encodePng(dot(grey(), 2, 2)));
  });
});
