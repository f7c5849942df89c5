const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

/**
 * Bytes as the text OSWorld's metrics compare, which read them in Python's text mode: UTF-8, every line end a `\n`.
 * Bytes that are no UTF-8 become U+FFFD, where Python gives up.
 */
export function asText(bytes: Uint8Array): string {
  return decoder.decode(bytes).replace(/\r\n?/g, '\n');
}

/** Of a large file the whole text takes twice to thirty times its memory, the more so the more of its line ends are others. */
const PIECE_BYTES = 2 ** 16;

/** The same, piece by piece. */
export function* textPieces(bytes: Uint8Array, pieceBytes = PIECE_BYTES): Generator<string> {
  const streaming = new TextDecoder('utf-8', { ignoreBOM: true });
  // A carriage return at the end of a piece may be half a line end.
  let held = '';
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    const stream = at + pieceBytes < bytes.length;
    const text = held + streaming.decode(bytes.subarray(at, at + pieceBytes), { stream });
    held = stream && text.endsWith('\r') ? '\r' : '';
    yield text.slice(0, text.length - held.length).replace(/\r\n?/g, '\n');
  }
}
