/** The server cannot serve gymbus, or refuses us; waiting will not help. The message carries the remedy. */
export class BusRefused extends Error {
  override readonly name = 'BusRefused';
}

/** No server answered within the time given. */
export class BusUnreachable extends Error {
  override readonly name = 'BusUnreachable';
}
