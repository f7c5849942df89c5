import { Command } from 'commander';
import { ensureStreams } from '../bus/ensure.ts';
import { clientConfig, openClientBus } from './client.ts';

const ensureCommand = new Command('ensure')
  .description('Make the streams and buckets that are missing, and check those that are there')
  .addHelpText(
    'after',
    '\nIdempotent. One that differs from what is needed is named, field by field, and left as it is; exits 1.',
  )
  .action(async () => {
    await using bus = await openClientBus(await clientConfig());
    const made = await ensureStreams(bus);
    console.log(made.length > 0 ? `made ${made.join(', ')}` : 'all streams and buckets are there, as needed');
  });

export const streamsCommand = new Command('streams')
  .description('The streams and buckets on the bus')
  .addCommand(ensureCommand);
