import type { Evaluator, Getter } from '../../schemas/index.ts';

/** One metric with what it looks at, drawn from an evaluator's lists. */
export interface Check {
  func: string;
  result: Getter | null;
  expected: Getter | null;
  options: Record<string, unknown>;
}

/** @returns the checks of an evaluator, or what keeps its lists from running side by side, one line a problem */
export function planOf(evaluator: Evaluator): { checks: Check[]; problems: string[] } {
  const { func } = evaluator;
  const funcs = Array.isArray(func) ? func : [func];
  const problems: string[] = [];
  if (funcs.length === 0) problems.push('func: is an empty list; name at least one metric, or leave the evaluator out');

  const column = <T>(
    field: 'result' | 'expected' | 'options',
    value: T | (T | null)[] | null | undefined,
  ): (T | null)[] => {
    if (value === undefined || value === null) return funcs.map(() => null);
    if (Array.isArray(value) !== Array.isArray(func)) {
      problems.push(
        Array.isArray(func)
          ? `${field}: must be a list of ${funcs.length} (one for each func, null where there is none), got one`
          : `${field}: must be one, for func is one, got a list of ${(value as unknown[]).length}`,
      );
      return funcs.map(() => null);
    }
    const list = Array.isArray(value) ? value : [value];
    if (list.length !== funcs.length) {
      problems.push(
        `${field}: has ${list.length} entries and func ${funcs.length}; give one for each, null where there is none`,
      );
    }
    return list;
  };
  const results = column('result', evaluator.result);
  const expected = column('expected', evaluator.expected);
  const options = column('options', evaluator.options);
  return {
    checks: funcs.map((name, index) => ({
      func: name,
      result: results[index] ?? null,
      expected: expected[index] ?? null,
      options: options[index] ?? {},
    })),
    problems,
  };
}
