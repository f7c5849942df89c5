import type { Guest } from '../guest.ts';

/** Fills in what OSWorld's set-up commands leave to the guest: its password and the size of its screen. */
export function fillPlaceholders(text: string, { account, screen }: Pick<Guest, 'account' | 'screen'>): string {
  const values: Record<string, string> = {
    CLIENT_PASSWORD: account.password,
    SCREEN_WIDTH: String(screen.width),
    SCREEN_HEIGHT: String(screen.height),
    SCREEN_WIDTH_HALF: String(Math.floor(screen.width / 2)),
    SCREEN_HEIGHT_HALF: String(Math.floor(screen.height / 2)),
  };
  return text.replace(
    /\{([A-Z_]+)\}/g,
    (whole, name: string) => (Object.hasOwn(values, name) ? values[name] : whole) ?? whole,
  );
}
