import { z } from 'zod';

/** Of a metric that takes none. */
export const NoOptions = z.strictObject({});
export type NoOptions = z.infer<typeof NoOptions>;
