/** The wire contract: what travels on the bus and lies in the bucket. */
export * from './action.ts';
export * from './attempts.ts';
export * from './batch.ts';
export * from './event.ts';
export * from './id.ts';
export * from './issues.ts';
export * from './job.ts';
export * from './keys.ts';
export * from './manifest.ts';
export * from './names.ts';
export * from './network.ts';
export * from './result.ts';
export * from './runner-status.ts';
export * from './step.ts';
