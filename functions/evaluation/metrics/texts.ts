import { z } from 'zod';

/** OSWorld's tasks look for at most 21, of a line each. */
const MOST_TEXTS = 1_000;
const MOST_CHARACTERS = 2 ** 16;

/** Texts to be looked for in another. */
export const Texts = z
  .array(z.string())
  .max(MOST_TEXTS)
  .refine(
    (texts) => texts.reduce((sum, text) => sum + text.length, 0) <= MOST_CHARACTERS,
    `must have at most ${MOST_CHARACTERS} characters in all`,
  );
