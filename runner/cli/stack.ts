import { findStack, type StackAddress, stackEnvironment } from '../../infra/stack-file.ts';
import { configOf } from './client.ts';

export { stackEnvironment };

/** The local stack of this machine's data directory, if it runs and answers. */
export function findLocalStack(): Promise<StackAddress | null> {
  return findStack(configOf(process.env).dataDir);
}
