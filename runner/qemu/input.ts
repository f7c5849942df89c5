import { setMaxListeners } from 'node:events';
import type { ScreenSize } from '../../functions/guest.ts';
import type { Button, InputAction } from '../../schemas/index.ts';
import { ActionRejected, MaybeDelivered } from './errors.ts';
import { Held } from './held.ts';
import { button, type InputEvent, key, pointTo, wheel } from './input-events.ts';
import { keyStroke, type Stroke, textStrokes } from './keyboard.ts';
import { Turns } from './turns.ts';

/** What input needs of the machine. */
export interface InputPort {
  /** Hands events to the guest's device as one report. Ends when QEMU has done so. */
  send(events: readonly InputEvent[], signal: AbortSignal): Promise<void>;
  /** Ends when the guest's display server has read everything that was sent before. */
  barrier(signal: AbortSignal): Promise<void>;
  /** Types through the guest's helper, for characters that are on no key. */
  typeText(text: string, signal: AbortSignal): Promise<void>;
  /** Ends when the guest's processors have slept for so long: it has dealt with what was sent. Or when `maxMs` have passed. */
  rest(limits: Rest, signal: AbortSignal): Promise<void>;
  /** Wheel notches to the right (left when negative): QEMU's tablet has no horizontal wheel. */
  scrollSideways(notches: number, signal: AbortSignal): Promise<void>;
}

interface Rest {
  quietMs: number;
  maxMs: number;
}

/**
 * Reports sent between two barriers. The device's queue and the guest's event buffer hold 64 entries each, a report takes two or three,
 * and what does not fit is dropped without a word.
 */
const REPORTS_PER_BARRIER = 16;
/** Answering a motion takes some milliseconds of work; a guest that is busy with other things is not waited for. */
const DRAG_REST: Rest = { quietMs: 75, maxMs: 3_000 };
/** Actions whose point it is that something stays pressed. */
const KEEPS_HOLDING: ReadonlySet<InputAction['type']> = new Set(['key_down', 'mouse_down']);
/** A drag is shown to the guest at least every so many pixels, so that it looks like one. */
const DRAG_STEP_PX = 24;
/** So far before its end a drag makes a halt, on its path. */
const DRAG_HALT_PX = 2;

/**
 * Mouse and keyboard of one machine: turns actions into reports. One action at a time.
 * When `perform` resolves the guest has read everything, so that the next action cannot overtake this one.
 */
export class InputDevices {
  readonly #port: InputPort;
  readonly #screen: ScreenSize;
  readonly #turns = new Turns();

  constructor(port: InputPort, screen: ScreenSize) {
    this.#port = port;
    this.#screen = screen;
  }

  /**
   * @throws ActionRejected nothing was sent
   * @throws MaybeDelivered something may have been
   */
  perform(action: InputAction, signal: AbortSignal): Promise<void> {
    return this.#turns.take(() => this.#perform(action, signal));
  }

  /** Moves the pointer without waiting for the guest to take it. */
  point(spot: { x: number; y: number }, signal: AbortSignal): Promise<void> {
    return this.#port.send(pointTo(spot.x, spot.y, this.#screen), signal);
  }

  async #perform(action: InputAction, signal: AbortSignal): Promise<void> {
    const steps = plan(action, this.#screen);
    signal.throwIfAborted();
    const held = new Held();
    try {
      for (const step of steps) await this.#run(step, held, signal);
    } catch (error) {
      // What it would have let go of must not stay pressed under everything that follows, whatever ended it.
      if (!KEEPS_HOLDING.has(action.type)) await this.#letGo(held);
      throw new MaybeDelivered(`${action.type} may have reached the guest: ${(error as Error).message}`, {
        cause: error,
      });
    }
  }

  async #letGo(held: Held): Promise<void> {
    const { signal } = new AbortController();
    await Promise.allSettled(held.releases().map((event) => this.#port.send([event], signal)));
  }

  async #run(step: Step, held: Held, signal: AbortSignal): Promise<void> {
    if (step.kind === 'text') return this.#port.typeText(step.text, signal);
    if (step.kind === 'sideways') return this.#port.scrollSideways(step.notches, signal);
    if (step.kind === 'rest') return this.#port.rest(DRAG_REST, signal);
    // Each report on its way listens to it: a whole batch of them is no leak.
    setMaxListeners(2 * REPORTS_PER_BARRIER, signal);
    for (let at = 0; at < step.reports.length; at += REPORTS_PER_BARRIER) {
      const batch = step.reports.slice(at, at + REPORTS_PER_BARRIER);
      for (const event of batch.flat()) held.note(event);
      await Promise.all(batch.map((events) => this.#port.send(events, signal)));
      await this.#port.barrier(signal);
    }
  }
}

/** A run of reports that ends with a barrier, or what goes through the helper. */
type Step =
  | { kind: 'reports'; reports: InputEvent[][] }
  | { kind: 'text'; text: string }
  | { kind: 'rest' }
  | { kind: 'sideways'; notches: number };

const reports = (...list: InputEvent[][]): Step => ({ kind: 'reports', reports: list });

/** What an action comes to. @throws ActionRejected */
function plan(action: InputAction, screen: ScreenSize): Step[] {
  const point = (x: number, y: number): InputEvent[] => {
    if (x < 0 || y < 0 || x >= screen.width || y >= screen.height) {
      throw new ActionRejected(
        `${action.type}: (${x}, ${y}) is outside the screen of ${screen.width}x${screen.height}`,
      );
    }
    return pointTo(x, y, screen);
  };
  switch (action.type) {
    case 'move':
      return [reports(point(action.x, action.y))];
    case 'mouse_down':
    case 'mouse_up':
      return [reports(point(action.x, action.y), [button(action.button, action.type === 'mouse_down')])];
    case 'click': {
      const press = Array.from({ length: action.count }, () => click(action.button)).flat();
      const modifiers = action.modifiers.map((name) => stroke(name));
      // Keyboard and pointer are two devices: without a barrier between them the guest may read them in either order.
      return [
        ...(modifiers.length > 0 ? [reports(...modifiers.map((it) => [key(it.qcode, true)]))] : []),
        reports(point(action.x, action.y), ...press),
        ...(modifiers.length > 0 ? [reports(...modifiers.toReversed().map((it) => [key(it.qcode, false)]))] : []),
      ];
    }
    case 'drag': {
      const [start, ...rest] = action.path.map(([x, y]) => ({ x, y, report: point(x, y) }));
      if (!start) throw new ActionRejected('drag: path is empty');
      const moves: InputEvent[][] = [];
      let from = start;
      for (const [index, to] of rest.entries()) {
        const length = Math.hypot(to.x - from.x, to.y - from.y);
        const between = (share: number): InputEvent[] =>
          pointTo(Math.round(from.x + (to.x - from.x) * share), Math.round(from.y + (to.y - from.y) * share), screen);
        const steps = Math.max(1, Math.ceil(length / DRAG_STEP_PX));
        for (let n = 1; n < steps; n += 1) moves.push(between(n / steps));
        moves.push(index < rest.length - 1 ? to.report : between(Math.max(0, 1 - DRAG_HALT_PX / length)));
        from = to;
      }
      // A program asks what is being dragged over it, and says whether it takes it with the next motion: without one more motion, and
      // the time to answer it, it refuses what is dropped. The first motion is lost on a program that is only about to begin the drag, and
      // has not yet grabbed the pointer: so there and back twice.
      const halt = moves.at(-1) ?? from.report;
      const atRest = (report: InputEvent[]): Step[] => [reports(report), { kind: 'rest' }];
      return [
        reports(start.report),
        reports([button(action.button, true)]),
        reports(...moves.slice(0, -1)),
        ...[halt, from.report, halt, from.report].flatMap(atRest),
        reports([button(action.button, false)]),
      ];
    }
    case 'scroll': {
      const notch = [wheel(action.dy > 0 ? 'wheel-down' : 'wheel-up', true)];
      const release = [wheel(action.dy > 0 ? 'wheel-down' : 'wheel-up', false)];
      const notches = Array.from({ length: Math.abs(action.dy) }, () => [notch, release]).flat();
      return [
        reports(point(action.x, action.y), ...notches),
        ...(action.dx === 0 ? [] : [{ kind: 'sideways' as const, notches: action.dx }]),
      ];
    }
    case 'type': {
      const strokes = textStrokes(action.text);
      if (strokes) return [reports(...strokes.flatMap(strike))];
      const control = [...action.text].find((it) => it < ' ' && !'\n\r\t'.includes(it));
      if (control !== undefined) {
        throw new ActionRejected(`type: text has the control character ${JSON.stringify(control)}; use a key action`);
      }
      return [{ kind: 'text', text: action.text.replaceAll('\r\n', '\n') }];
    }
    case 'key':
      return [reports(...strike(stroke(action.key)))];
    case 'key_down':
    case 'key_up': {
      const { qcode } = stroke(action.key);
      return [reports([key(qcode, action.type === 'key_down')])];
    }
    case 'hotkey': {
      const strokes = action.keys.map((name) => stroke(name));
      const shifts = strokes.some((it) => it.shift) && !strokes.some((it) => it.qcode === 'shift') ? ['shift'] : [];
      const order = [...shifts, ...strokes.map((it) => it.qcode)];
      return [
        reports(...order.map((qcode) => [key(qcode, true)]), ...order.toReversed().map((qcode) => [key(qcode, false)])),
      ];
    }
  }
}

function stroke(name: string): Stroke {
  const found = keyStroke(name);
  if (!found) {
    throw new ActionRejected(
      `there is no key ${JSON.stringify(name)}: use a name such as enter, page_down, f5, or the one character it types`,
    );
  }
  return found;
}

function strike(it: Stroke): InputEvent[][] {
  const struck = [[key(it.qcode, true)], [key(it.qcode, false)]];
  return it.shift ? [[key('shift', true)], ...struck, [key('shift', false)]] : struck;
}

function click(name: Button): InputEvent[][] {
  return [[button(name, true)], [button(name, false)]];
}
