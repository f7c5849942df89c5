export const root: string;
/** @returns the folder with the compiled program */
export function prepare(): string;
