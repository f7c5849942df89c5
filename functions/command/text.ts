const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

/**
 * Bytes as the text OSWorld's metrics compare, which read them in Python's text mode: UTF-8, every line end a `\n`.
 * Bytes that are no UTF-8 become U+FFFD, where Python gives up.
 */
export function asText(bytes: Uint8Array): string {
  return decoder.decode(bytes).replace(/\r\n?/g, '\n');
}
