import { setImmediate as turn } from 'node:timers/promises';

/*
 * JavaScript's own `includes` looks for one text at a time, and is over when it is over: a text of 40,000 characters in one of
 * 256 KiB may take it 3 s, 90,000 short ones in a file of 64 MiB hours, in which a runner does nothing else, and which no
 * limit can end. Here all texts are looked for at once, by the automaton of Aho and Corasick: about one step for each
 * character, whatever they are.
 */

/** Characters between two turns of the event loop: some 10 ms. */
const SLICE = 2 ** 17;

/**
 * Looks for texts in a longer one, which comes in pieces. Takes time as all of it is long, and gives way to whatever else
 * the process does.
 * @returns those that occur
 * @throws the signal's reason, at its next turn
 */
export async function occurring(
  texts: Iterable<string>,
  pieces: Iterable<string>,
  signal: AbortSignal,
): Promise<Set<string>> {
  let left = SLICE;
  const pause = async (): Promise<void> => {
    left = SLICE;
    await turn();
    signal.throwIfAborted();
  };
  const distinct = new Set(texts);
  const automaton = new Automaton();
  for (const text of distinct) {
    let state = START;
    for (const slice of slicesOf(text)) {
      state = automaton.learn(state, slice);
      left -= slice.length;
      if (left <= 0) await pause();
    }
    automaton.end(state, text);
  }
  for (const state of automaton.byDepth()) {
    automaton.link(state);
    left -= 1;
    if (left <= 0) await pause();
  }
  for (const piece of pieces) {
    for (const slice of slicesOf(piece)) {
      if (automaton.found.size === distinct.size) return automaton.found;
      automaton.read(slice);
      left -= slice.length;
      if (left <= 0) await pause();
    }
  }
  return automaton.found;
}

function* slicesOf(text: string): Generator<string> {
  for (let at = 0; at < text.length; at += SLICE) yield text.slice(at, at + SLICE);
}

const START = 0;
const NONE = 0;

/** A state stands for the beginning of a text that what was read ends with: the longest of all. */
class Automaton {
  /** Texts that occurred. */
  readonly found = new Set<string>();
  /** From a state by a UTF-16 unit, as one number of both. */
  readonly #next = new Map<number, number>();
  readonly #parents = [START];
  readonly #units = [0];
  readonly #depths = [0];
  #deepest = 0;
  /** The text that a state is the whole of. */
  readonly #texts: (string | undefined)[] = [undefined];
  /** The longest state that a state ends with, beside itself. */
  readonly #shorter = [START];
  /** The longest of those that is a whole text. */
  readonly #inner = [NONE];
  #state = START;

  learn(from: number, part: string): number {
    let state = from;
    for (let at = 0; at < part.length; at++) {
      const unit = part.charCodeAt(at);
      let next = this.#next.get(keyOf(state, unit));
      if (next === undefined) {
        next = this.#parents.length;
        this.#next.set(keyOf(state, unit), next);
        this.#parents.push(state);
        this.#units.push(unit);
        const depth = (this.#depths[state] ?? 0) + 1;
        this.#depths.push(depth);
        this.#deepest = Math.max(this.#deepest, depth);
        this.#texts.push(undefined);
      }
      state = next;
    }
    return state;
  }

  end(state: number, text: string): void {
    // The empty text is in all others.
    if (state === START) this.found.add(text);
    else this.#texts[state] = text;
  }

  /** All states but the first, shorter ones first: so they are to be linked. Sorted by counting, for that takes no time. */
  byDepth(): Uint32Array {
    const ends = new Uint32Array(this.#deepest + 1);
    for (const depth of this.#depths) ends[depth] = (ends[depth] ?? 0) + 1;
    for (let depth = 1; depth < ends.length; depth++) ends[depth] = (ends[depth] ?? 0) + (ends[depth - 1] ?? 0);
    const sorted = new Uint32Array(this.#depths.length);
    for (const [state, depth] of this.#depths.entries()) {
      const place = (ends[depth] ?? 0) - 1;
      ends[depth] = place;
      sorted[place] = state;
    }
    return sorted.subarray(1);
  }

  link(state: number): void {
    const parent = this.#parents[state] ?? START;
    const shorter = parent === START ? START : this.#step(this.#shorter[parent] ?? START, this.#units[state] ?? 0);
    this.#shorter[state] = shorter;
    this.#inner[state] = this.#texts[shorter] === undefined ? (this.#inner[shorter] ?? NONE) : shorter;
  }

  read(part: string): void {
    let state = this.#state;
    for (let at = 0; at < part.length; at++) {
      state = this.#step(state, part.charCodeAt(at));
      if (state !== START) this.#note(state);
    }
    this.#state = state;
  }

  #note(state: number): void {
    for (let at = this.#texts[state] === undefined ? this.#inner[state] : state; at; at = this.#inner[at]) {
      const text = this.#texts[at] ?? '';
      // Those within it were noted with it.
      if (this.found.has(text)) return;
      this.found.add(text);
    }
  }

  #step(from: number, unit: number): number {
    for (let state = from; ; state = this.#shorter[state] ?? START) {
      const next = this.#next.get(keyOf(state, unit));
      if (next !== undefined) return next;
      if (state === START) return START;
    }
  }
}

function keyOf(state: number, unit: number): number {
  return state * 2 ** 16 + unit;
}
