import type { ScreenSize } from '../../functions/guest.ts';
import type { Button } from '../../schemas/index.ts';

/** An event of QEMU's `input-send-event`. */
export type InputEvent =
  | { type: 'abs'; data: { axis: 'x' | 'y'; value: number } }
  | { type: 'btn'; data: { button: Button | 'wheel-up' | 'wheel-down'; down: boolean } }
  | { type: 'key'; data: { down: boolean; key: { type: 'qcode'; data: string } } };

/** The tablet's axes run from 0 to 32767 whatever the screen. */
const AXIS_UNITS = 32_768;

/** Aims at the middle of a pixel, so that rounding in the guest, whichever way, ends on that pixel. */
export function pointTo(x: number, y: number, screen: ScreenSize): InputEvent[] {
  return [
    { type: 'abs', data: { axis: 'x', value: Math.floor(((x + 0.5) * AXIS_UNITS) / screen.width) } },
    { type: 'abs', data: { axis: 'y', value: Math.floor(((y + 0.5) * AXIS_UNITS) / screen.height) } },
  ];
}

export function button(name: Button, down: boolean): InputEvent {
  return { type: 'btn', data: { button: name, down } };
}

export function wheel(name: 'wheel-up' | 'wheel-down', down: boolean): InputEvent {
  return { type: 'btn', data: { button: name, down } };
}

export function key(qcode: string, down: boolean): InputEvent {
  return { type: 'key', data: { down, key: { type: 'qcode', data: qcode } } };
}
