import { existsSync } from 'node:fs';
import path from 'node:path';

/** What some tests need of the machine they run on. */
export type Requirement = 'vm' | 'reflink' | 'fault' | 'osworld' | 'kvm';

const projectRoot = path.resolve(import.meta.dirname, '../..');
/** Real OSWorld tasks, beside the checkout or at `GYMBUS_OSWORLD`. */
export const osworldTasks = process.env.GYMBUS_OSWORLD ?? path.resolve(projectRoot, '../shared/osworld/tasks');

const checks: Record<Requirement, () => string | null> = {
  vm: () => (process.platform === 'linux' ? null : 'virtual machine tests run on Linux'),
  reflink: () => (process.getuid?.() === 0 ? null : 'the storage area is mounted by root'),
  fault: () => (process.platform === 'linux' ? null : 'faults are injected on Linux'),
  osworld: () => (existsSync(osworldTasks) ? null : `no OSWorld tasks at ${osworldTasks}`),
  kvm: () => (process.env.GYMBUS_TEST_KVM === 'yes' ? null : 'no guest boots under KVM here'),
};

/**
 * Whether tests with this requirement run here: for `describe.skipIf(!available('osworld'))`.
 * @throws under CI, where leaving such a test out is a failure (KVM excepted: no setting of ours brings it)
 */
export function available(requirement: Requirement): boolean {
  const reason = checks[requirement]();
  if (reason === null) return true;
  if (process.env.CI && requirement !== 'kvm')
    throw new Error(`${requirement} tests may not be skipped under CI: ${reason}`);
  console.log(`leaving out ${requirement} tests: ${reason}`);
  return false;
}
