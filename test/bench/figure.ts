/** One measured figure, beside its baseline of the same run. */
export interface Figure {
  figure: string;
  value: number;
  unit: string;
  /** Measured in the same run; null where the goal stands by itself. */
  baseline: number | null;
  ratio: number | null;
  goal: string;
  met: boolean;
}

export function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

/** The least value that so large a part of them is not above. */
export function quantile(values: readonly number[], part: number): number {
  return [...values].sort((a, b) => a - b)[Math.max(0, Math.ceil(values.length * part) - 1)] ?? Number.NaN;
}

/** Three significant digits. */
export function rounded(value: number): number {
  return Number(value.toPrecision(3));
}
