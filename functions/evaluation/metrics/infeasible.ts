/**
 * The metric of a task that cannot be done: 1 when the policy's last action was to say so. It looks at no state of the
 * guest, so it is the evaluation's own and no MetricFunction.
 */
export const INFEASIBLE = 'infeasible';
