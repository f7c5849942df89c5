import { Command } from 'commander';
import { configOf } from './client.ts';
import { examineHost, type Finding } from './doctor-checks.ts';
import { CliError } from './error.ts';
import { Interrupt } from './interrupt.ts';

const MARK: Record<Finding['verdict'], string> = { fine: 'ok  ', note: 'note', wrong: 'FAIL' };

export const doctorCommand = new Command('doctor')
  .description(
    'Check this machine: accelerator (by booting a guest), reflink (by cloning), tools, memory, disk, servers',
  )
  .option('--json', 'the findings as JSON')
  .addHelpText('after', '\nExits 1 when something keeps a runner from working. Changes nothing but caches.')
  .action(async (options: { json?: boolean }) => {
    using interrupt = new Interrupt();
    const config = configOf(process.env);
    const findings: Finding[] = [];
    for await (const finding of examineHost(config, interrupt.signal)) {
      findings.push(finding);
      if (options.json) continue;
      console.log(`${MARK[finding.verdict]}  ${finding.what.padEnd(12)} ${finding.found}`);
      if (finding.remedy) console.log(`                    ${finding.remedy}`);
    }
    if (options.json) console.log(JSON.stringify(findings, null, 2));
    const wrong = findings.filter(({ verdict }) => verdict === 'wrong');
    if (wrong.length > 0)
      throw new CliError(`a runner cannot work here yet: ${wrong.map(({ what }) => what).join(', ')}`);
  });
