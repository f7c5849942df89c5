import { ObjectDamaged } from './errors.ts';

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
/** Length, type and checksum around a chunk's data. */
const CHUNK_FRAME = 12;

/**
 * Width and height of a PNG in pixels, from its header.
 * @throws ObjectDamaged when it is no PNG or does not end where its chunks say: a picture cut off while it was written
 */
export function pngSize(png: Buffer): { width: number; height: number } {
  if (!png.subarray(0, 8).equals(SIGNATURE)) {
    throw new ObjectDamaged(
      `no PNG: ${png.byteLength} bytes that begin ${png.subarray(0, 8).toString('hex') || '(empty)'}`,
    );
  }
  let offset = SIGNATURE.byteLength;
  while (offset + CHUNK_FRAME <= png.byteLength) {
    const end = offset + CHUNK_FRAME + png.readUInt32BE(offset);
    const type = png.toString('latin1', offset + 4, offset + 8);
    if (offset === SIGNATURE.byteLength && type !== 'IHDR') break;
    if (type === 'IEND' && end === png.byteLength) return { width: png.readUInt32BE(16), height: png.readUInt32BE(20) };
    offset = end;
  }
  throw new ObjectDamaged(`truncated PNG: it has ${png.byteLength} bytes and no end`);
}
