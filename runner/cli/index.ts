import type { Command } from 'commander';
import { capacityCommand } from './capacity.ts';
import { demoCommand } from './demo.ts';
import { doctorCommand } from './doctor.ts';
import { envCommand } from './env.ts';
import { getCommand } from './get.ts';
import { imageCommand } from './image.ts';
import { resultsCommand } from './results.ts';
import { runCommand } from './run.ts';
import { streamsCommand } from './streams.ts';
import { submitCommand } from './submit.ts';
import { upCommand } from './up.ts';
import { watchCommand } from './watch.ts';

/** In the order a newcomer meets them. */
export const commands: readonly Command[] = [
  demoCommand,
  upCommand,
  envCommand,
  submitCommand,
  watchCommand,
  resultsCommand,
  getCommand,
  runCommand,
  streamsCommand,
  imageCommand,
  doctorCommand,
  capacityCommand,
];
