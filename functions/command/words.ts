/** A command line that no shell would take, e.g. an open quote. */
export class WordsError extends Error {
  override readonly name = 'WordsError';
}

/**
 * Splits a command line into words as a POSIX shell does, and does nothing else a shell does: no variables, globs,
 * comments, pipes. The same words as Python's `shlex.split`, which OSWorld's guests use.
 * @throws WordsError an open quote or a backslash at the end
 */
export function splitWords(line: string): string[] {
  const words: string[] = [];
  // Null between words: '' is a word of its own once a quote has opened it.
  let word: string | null = null;
  let quote: '"' | "'" | null = null;
  for (let at = 0; at < line.length; at++) {
    const char = line.charAt(at);
    if (quote === null && /[ \t\r\n]/.test(char)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (quote === null && (char === '"' || char === "'")) {
      quote = char;
      word ??= '';
    } else if (char === quote) {
      quote = null;
    } else if (char === '\\' && quote !== "'") {
      const next = line.charAt(++at);
      if (next === '') throw new WordsError('nothing follows the backslash at its end');
      // Between double quotes a backslash escapes only these two; before anything else it stands for itself.
      const escapes = quote === null || next === '"' || next === '\\';
      word = (word ?? '') + (escapes ? next : `\\${next}`);
    } else {
      word = (word ?? '') + char;
    }
  }
  if (quote !== null) throw new WordsError(`the quote ${quote} is never closed`);
  if (word !== null) words.push(word);
  return words;
}
