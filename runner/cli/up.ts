import { Command } from 'commander';
import { CliError, messageOf } from './error.ts';
import { Interrupt } from './interrupt.ts';
import { type LocalGym, startLocalGym } from './local.ts';
import { watchNpm } from './parent-watch.ts';
import { untilStopped } from './run-until-stopped.ts';

export const upCommand = new Command('up')
  .description('Keep a local stack (nats-server, S3) and a runner running, until Ctrl-C')
  .addHelpText('after', '\nInstalls and builds what is missing. In another shell: eval "$(npx gymbus env)"')
  .action(async () => {
    using interrupt = new Interrupt();
    using _npm = await watchNpm(() => interrupt.fail('the npm that started this is gone'));
    await using gym = await startLocalGym(interrupt);
    console.log(banner(gym));
    await untilStopped(gym.runner, interrupt, (jobs) => {
      const seconds = Math.round(gym.config.drainMs / 1_000);
      const [has, goes, stays] =
        jobs === 1
          ? ['1 job has', '1 job goes', '1 job stays']
          : [`${jobs} jobs have`, `${jobs} jobs go`, `${jobs} jobs stay`];
      if (gym.stack.failed.aborted) {
        console.error(`\nstopping, for a server of the stack ended; ${stays} in the queue`);
      } else if (interrupt.hurry.aborted) {
        console.error(`\nstopping: ${goes} back to the queue now`);
      } else {
        console.error(
          `\nstopping: ${has} ${seconds} s to end, then go back to the queue; Ctrl-C again gives them back now`,
        );
      }
    });
    // Also when it ended after a Ctrl-C: what is on the bus may not be what the runner did.
    if (gym.stack.failed.aborted) throw new CliError(messageOf(gym.stack.failed.reason));
    const { reason } = interrupt.signal;
    // A Ctrl-C is how this ends; anything else is told by the exit code.
    if (reason instanceof CliError && reason.message !== 'interrupted') throw reason;
  });

function banner({ config, stack, runner, logFile }: LocalGym): string {
  const { natsUrl, s3 } = stack;
  const { capacity, accelerator, images } = runner.status();
  // A shell that knows nothing of this one's setting would look for the stack elsewhere.
  const elsewhere = process.env.GYMBUS_DATA ? `  export GYMBUS_DATA=${config.dataDir}\n` : '';
  return `NATS        ${natsUrl}
S3          ${s3.endpoint}  bucket ${s3.bucket}  region ${s3.region}
access key  ${s3.accessKeyId}
secret key  ${s3.secretAccessKey}
runner      ${config.runnerId}: ${images.map(({ name }) => name).join(', ')} (${accelerator}); at most ${capacity.acting} act at once (${capacity.bound})
health      http://127.0.0.1:${runner.healthPort}/healthz
log         ${logFile}

Try, in another shell:
${elsewhere}  npx gymbus demo
  eval "$(npx gymbus env)" && nats sub 'gymbus.events.>'
  eval "$(npx gymbus env)" && aws s3 ls --recursive "s3://$GYMBUS_BUCKET/"

Ctrl-C stops it; the data stays in ${config.dataDir}.`;
}
