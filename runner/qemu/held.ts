import type { InputEvent } from './input-events.ts';

/** Keys and buttons that are down, by the events sent so far. */
export class Held {
  readonly #releases = new Map<string, InputEvent>();

  note(event: InputEvent): void {
    if (event.type === 'abs') return;
    const name = event.type === 'btn' ? `button ${event.data.button}` : `key ${event.data.key.data}`;
    if (event.data.down) this.#releases.set(name, released(event));
    else this.#releases.delete(name);
  }

  /** What lets go of all of them, the last pressed first. */
  releases(): InputEvent[] {
    return [...this.#releases.values()].reverse();
  }
}

function released(event: Exclude<InputEvent, { type: 'abs' }>): InputEvent {
  if (event.type === 'btn') return { type: 'btn', data: { ...event.data, down: false } };
  return { type: 'key', data: { ...event.data, down: false } };
}
