import type { FailureClass, Status, TrajectoryJobInput } from '../../schemas/index.ts';
import { click, drag, hotkey, icon, key, PANEL, prints, script, shell, slow, type } from './desktop.ts';

/** A job of the demo, and how it must end. */
export interface DemoJob {
  job: Omit<TrajectoryJobInput, 'schema' | 'batch_id' | 'image'>;
  expect: { status: Status; score: number | null; class?: FailureClass };
}

const LETTER = `Dear Ms. O'Neil,
invoice #42 (50% off!) comes to $1,250.75; pay by 5:30 p.m. @ desk 7.
Thanks & best wishes: "J. R."
`;
const GREETINGS = 'Grüße aus Köln! 漢字, Ελλάδα, Привет. Kaffee: 3 €\n';
const done = { status: 'completed', score: 1 } as const;

/** Writes a text in the editor and saves it under this name, seen from the home folder. */
const writeText = (text: string, file: string): TrajectoryJobInput['policy'] =>
  script(slow(click(PANEL.textEditor), 3), type(text), slow(hotkey('ctrl', 's'), 3), type(file), slow(key('enter')));

/** Small tasks of a desktop, each played through mouse and keyboard and scored by what is then in the guest. */
export const DEMO_JOBS: readonly DemoJob[] = [
  {
    job: {
      job_id: 'new-folder',
      instruction: 'Use the file manager to make a folder named Reports in the home folder.',
      policy: script(
        slow(click(PANEL.fileManager), 2),
        slow(hotkey('ctrl', 'shift', 'n')),
        type('Reports'),
        slow(key('enter')),
      ),
      evaluator: prints('[ -d ~/Reports ] && echo exists', 'exists\n'),
    },
    expect: done,
  },
  {
    job: {
      job_id: 'write-letter',
      instruction: `Write this text in the text editor and save it as letter.txt in Documents:\n${LETTER}`,
      policy: writeText(LETTER, 'Documents/letter.txt'),
      evaluator: prints('cat ~/Documents/letter.txt', LETTER),
    },
    expect: done,
  },
  {
    job: {
      job_id: 'write-unicode',
      instruction: `Write this line in the text editor and save it as greetings.txt in the home folder:\n${GREETINGS}`,
      policy: writeText(GREETINGS, 'greetings.txt'),
      evaluator: prints('cat ~/greetings.txt', GREETINGS),
    },
    expect: done,
  },
  {
    job: {
      job_id: 'close-window',
      instruction: 'Close the text editor.',
      setup: [
        { type: 'launch', parameters: { command: ['mousepad'] } },
        shell('for i in $(seq 60); do wmctrl -l | grep -q Mousepad && exit 0; sleep 2; done; exit 1', { timeout: 240 }),
      ],
      policy: script(slow(click({ x: 987, y: 101 }))),
      evaluator: {
        func: 'check_include_exclude',
        result: { type: 'vm_command_line', command: 'wmctrl -lx', shell: true },
        expected: { type: 'rule', rules: { include: ['pcmanfm'], exclude: ['Mousepad'] } },
      },
      limits: { setup_s: 240 },
    },
    expect: done,
  },
  {
    job: {
      job_id: 'rename-file',
      instruction: 'Rename the file draft.txt on the desktop to final.txt.',
      setup: [shell('echo "Chapter 1" > ~/Desktop/draft.txt')],
      policy: script(click(icon(0)), slow(key('f2'), 2), hotkey('ctrl', 'a'), type('final.txt'), slow(key('enter'))),
      evaluator: prints('cd ~/Desktop && ls && cat final.txt', 'final.txt\nChapter 1\n'),
    },
    expect: done,
  },
  {
    job: {
      job_id: 'move-file',
      instruction: 'On the desktop, drag the file receipt.txt into the folder Archive.',
      setup: [shell('mkdir ~/Desktop/Archive && echo "Total: 17" > ~/Desktop/receipt.txt')],
      policy: script(slow(drag(icon(1), icon(0)))),
      evaluator: prints('cd ~/Desktop && ls && cat Archive/receipt.txt', 'Archive\nTotal: 17\n'),
    },
    expect: done,
  },
  {
    job: {
      job_id: 'count-lines',
      instruction:
        'Open a terminal, count the lines of log.txt in the home folder and write the number to lines.txt beside it.',
      setup: [shell('seq 137 > ~/log.txt')],
      policy: script(slow(click(PANEL.terminal), 3), type('wc -l < log.txt > lines.txt'), slow(key('enter'))),
      evaluator: prints('cat ~/lines.txt', '137\n'),
    },
    expect: done,
  },
  {
    job: {
      job_id: 'show-battery',
      instruction: 'Show the battery percentage on the panel.',
      policy: {
        name: 'scripted',
        params: { actions: [{ type: 'fail', reason: 'This machine has no battery, and the panel cannot show one.' }] },
      },
      evaluator: { func: 'infeasible' },
    },
    expect: done,
  },
  {
    job: {
      job_id: 'misspelt-name',
      instruction: 'Rename the folder Plans on the desktop to Plans 2026.',
      setup: [shell('mkdir ~/Desktop/Plans')],
      policy: script(click(icon(0)), slow(key('f2'), 2), type('Plans 2206'), slow(key('enter'))),
      evaluator: prints('ls ~/Desktop', 'Plans 2026\n'),
      metadata: {
        note: 'The policy mistypes the name: the guest answers, the answer is wrong, the score is a valid 0.',
      },
    },
    expect: { status: 'completed', score: 0 },
  },
  {
    job: {
      job_id: 'broken-setup',
      instruction: 'Correct the date in the report.',
      setup: [shell('test -f ~/Documents/report.odt')],
      policy: script(),
      evaluator: prints('cat ~/Documents/report.odt', '2026\n'),
      retry: { max_attempts: 2 },
      metadata: {
        note: 'The set-up asks for a file that is not there: tried on two replicas, then failed, never scored.',
      },
    },
    expect: { status: 'failed', score: null, class: 'setup' },
  },
];
