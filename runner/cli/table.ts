/**
 * Lays rows out in columns as wide as their widest cell; numbers to the right.
 * @param rows objects with the same keys; the keys are the headings
 */
export function table(rows: readonly Record<string, string | number | null>[]): string {
  const headings = Object.keys(rows[0] ?? {});
  const text = rows.map((row) => headings.map((heading) => String(row[heading] ?? '-')));
  const numeric = headings.map((heading) =>
    rows.every((row) => row[heading] === null || typeof row[heading] === 'number'),
  );
  const widths = headings.map((heading, i) => Math.max(heading.length, ...text.map((cells) => cells[i]?.length ?? 0)));
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, i) => (numeric[i] ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0)))
      .join('  ')
      .trimEnd();
  return [line(headings), line(widths.map((width) => '-'.repeat(width))), ...text.map(line)].join('\n');
}
