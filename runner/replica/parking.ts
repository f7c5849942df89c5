import type { ScreenSize } from '../../functions/guest.ts';

/** Where the pointer rests in a template: on the bare desktop, away from panels and icons, which lie along the edges. */
export function parkingSpot(screen: ScreenSize): { x: number; y: number } {
  return { x: Math.round(screen.width * 0.7), y: Math.round(screen.height * 0.6) };
}

/** Where it is moved to and back from, to see that the picture follows. */
export function nearbySpot(screen: ScreenSize): { x: number; y: number } {
  const { x, y } = parkingSpot(screen);
  return { x: x + 40, y: y + 30 };
}
