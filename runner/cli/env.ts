import { Command } from 'commander';
import { configOf } from './client.ts';
import { CliError } from './error.ts';
import { findLocalStack, stackEnvironment } from './stack.ts';

export const envCommand = new Command('env')
  .description('Print shell exports that point nats, aws, boto3 and gymbus at the running local stack')
  .addHelpText('after', '\nUse it as: eval "$(npx gymbus env)". Prints nothing and exits 1 until the stack answers.')
  .action(async () => {
    const stack = await findLocalStack();
    if (stack === null)
      throw new CliError(
        `no local stack answers on GYMBUS_DATA=${configOf(process.env).dataDir}; start one with \`npx gymbus up\``,
      );
    for (const [name, value] of Object.entries(stackEnvironment(stack))) console.log(`export ${name}=${quote(value)}`);
  });

/** Single quotes, as POSIX shells read them. */
function quote(value: string): string {
  return `'${value.replaceAll("'", `'\\''`)}'`;
}
