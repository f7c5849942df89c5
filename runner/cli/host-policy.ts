import { hostProblems } from '../../functions/network/hosts.ts';
import type { RunnerStatus } from '../../schemas/index.ts';
import type { CheckedJob } from './job-files.ts';

/**
 * What jobs ask for that no live runner's image allows: whichever of them took such a job would make it a dead letter.
 * @returns one line a problem; none for images that nobody serves, or whose runners do not say what they allow
 */
export function refusedHosts(jobs: readonly CheckedJob[], runners: readonly RunnerStatus[]): string[] {
  return jobs.flatMap(({ address: { image, batch, job }, hosts }) => {
    const policies = runners
      .flatMap(({ images }) => images)
      .filter(({ name }) => name === image)
      .map(({ network }) => network);
    const problems = policies.map((allows) => (allows ? hostProblems(hosts, { name: image, allows }) : []));
    if (problems.some((found) => found.length === 0)) return [];
    return (problems[0] ?? []).map((problem) => `${batch}/${job}: ${problem}`);
  });
}
