import { Command } from 'commander';
import { CliError } from './error.ts';
import { Interrupt } from './interrupt.ts';
import { startLocalGym } from './local.ts';
import { watchNpm } from './parent-watch.ts';
import { untilStopped } from './run-until-stopped.ts';

export const upCommand = new Command('up')
  .description('Keep a local stack (nats-server, S3) and a runner running, until Ctrl-C')
  .addHelpText('after', '\nInstalls and builds what is missing. In another shell: eval "$(npx gymbus env)"')
  .action(async () => {
    using interrupt = new Interrupt();
    using _npm = await watchNpm(() => interrupt.stop('the npm that started this is gone'));
    await using gym = await startLocalGym(interrupt);
    gym.stack.failed.addEventListener('abort', () => interrupt.stop(`${gym.stack.failed.reason}`), { once: true });
    const { natsUrl, s3 } = gym.stack;
    console.log(`NATS       ${natsUrl}
S3         ${s3.endpoint}  bucket ${s3.bucket}  region ${s3.region}
access key ${s3.accessKeyId}
secret key ${s3.secretAccessKey}
log        ${gym.logFile}
runner     ${gym.config.runnerId}, at most ${gym.runner.status().capacity.acting} replicas act (${gym.runner.status().capacity.bound})

Try, in another shell:
  npx gymbus submit jobs.jsonl
  eval "$(npx gymbus env)"; nats stream subjects GYMBUS_JOBS
  eval "$(npx gymbus env)"; aws s3 ls --recursive "s3://$GYMBUS_BUCKET/"

Ctrl-C stops it; the data stays in ${gym.config.dataDir}.`);
    await untilStopped(gym.runner, interrupt);
    const { reason } = interrupt.signal;
    // A Ctrl-C is how this ends; anything else is told by the exit code.
    if (reason instanceof CliError && reason.message !== 'interrupted') throw reason;
  });
