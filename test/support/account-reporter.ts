import type { Reporter, TestCase, TestModule } from 'vitest/node';

/** Names each skipped test, and closes with one plain line: `N passed, N failed, N skipped`. */
export default class AccountReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const tests = modules.flatMap((module) => [...module.children.allTests()]);
    const by = (state: string): TestCase[] => tests.filter((test) => test.result().state === state);
    // A file that cannot be read has no test that could fail.
    const brokenModules = modules.filter(
      (module) => module.state() === 'failed' && !by('failed').some((test) => test.module.moduleId === module.moduleId),
    ).length;
    for (const test of by('skipped')) console.log(`skipped: ${test.module.relativeModuleId} > ${test.fullName}`);
    console.log(
      `${by('passed').length} passed, ${by('failed').length + brokenModules} failed, ${by('skipped').length} skipped`,
    );
  }
}
