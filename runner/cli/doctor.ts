import { Command } from 'commander';
import { configOf } from './client.ts';
import { examineHost, type Finding, type Pending } from './doctor-checks.ts';
import { CliError } from './error.ts';
import { Interrupt } from './interrupt.ts';

const MARK: Record<Finding['verdict'], string> = { fine: 'ok  ', note: 'note', wrong: 'FAIL' };

const CLEAR_LINE = '\x1b[K';
/** Columns before what was found. */
const INDENT = 19;

export const doctorCommand = new Command('doctor')
  .description(
    'Check this machine: accelerator (by booting a guest), reflink (by cloning), tools, memory, disk, servers',
  )
  .option('--json', 'the findings as JSON')
  .addHelpText(
    'after',
    '\nExits 1 when something keeps a runner from working. Makes the data directory and the storage area in it; changes nothing else.',
  )
  .action(async (options: { json?: boolean }) => {
    using interrupt = new Interrupt();
    const config = configOf(process.env);
    const findings: Finding[] = [];
    for await (const finding of examineHost(config, interrupt.signal)) {
      if ('pending' in finding) {
        if (!options.json) showPending(finding);
        continue;
      }
      findings.push(finding);
      if (options.json) continue;
      console.log(
        `${process.stdout.isTTY ? CLEAR_LINE : ''}${MARK[finding.verdict]}  ${finding.what.padEnd(12)} ${indented(finding.found)}`,
      );
      if (finding.remedy) console.log(`${' '.repeat(INDENT)}${finding.remedy}`);
    }
    if (options.json) console.log(JSON.stringify(findings, null, 2));
    const wrong = findings.filter(({ verdict }) => verdict === 'wrong');
    if (wrong.length > 0)
      throw new CliError(`a runner cannot work here yet: ${wrong.map(({ what }) => what).join(', ')}`);
  });

function indented(text: string): string {
  return text.replaceAll('\n', `\n${' '.repeat(INDENT)}`);
}

/** On a terminal the line is written over by what was found. */
function showPending({ what, pending }: Pending): void {
  if (process.stdout.isTTY) process.stdout.write(`...   ${what.padEnd(12)} ${pending}\r`);
}
