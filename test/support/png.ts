import { inflateSync } from 'node:zlib';
import type { Picture } from '../../runner/qemu/picture.ts';

const RGB = 2;

/** Reads a PNG as recordings have them: 8 bits of red, green and blue, no row filtered. @throws on any other */
export function decodePng(file: Buffer): Picture {
  const data: Buffer[] = [];
  let width = 0;
  let height = 0;
  for (let at = 8; at < file.length; ) {
    const bytes = file.readUInt32BE(at);
    const type = file.toString('latin1', at + 4, at + 8);
    const body = file.subarray(at + 8, at + 8 + bytes);
    if (type === 'IHDR') {
      width = body.readUInt32BE(0);
      height = body.readUInt32BE(4);
      if (body[8] !== 8 || body[9] !== RGB) throw new Error(`PNG of depth ${body[8]}, colour type ${body[9]}`);
    }
    if (type === 'IDAT') data.push(body);
    at += 12 + bytes;
  }
  const rows = inflateSync(Buffer.concat(data));
  const rowBytes = width * 3;
  const pixels = Buffer.alloc(rowBytes * height);
  for (let y = 0; y < height; y += 1) {
    const at = y * (rowBytes + 1);
    if (rows[at] !== 0) throw new Error(`row ${y} of a PNG has filter ${rows[at]}`);
    rows.copy(pixels, y * rowBytes, at + 1, at + 1 + rowBytes);
  }
  return { width, height, pixels };
}
