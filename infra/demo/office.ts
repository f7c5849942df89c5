import type { ActionInput, SetupStep } from '../../schemas/index.ts';
import { click, hotkey, key, prints, script, shell, slow, type } from './desktop.ts';
import type { DemoJob } from './jobs.ts';

/** Buttons of the panel of the office image, 1280 x 720 pixels. */
const WRITER = { x: 138, y: 702 };

/** Their programs are large: under software emulation on a busy host a start takes minutes. */
const limits = { max_steps: 40, setup_s: 1_200, step_s: 300, evaluate_s: 120, total_s: 3_000 };

const file = (path: string, text: string): SetupStep => ({
  type: 'upload_file',
  parameters: { files: [{ path, content_base64: Buffer.from(text).toString('base64') }] },
});

/** Starts a program and waits until a window with this in its title is there. */
const open = (command: string[], title: string): SetupStep[] => [
  { type: 'launch', parameters: { command } },
  shell(`for i in $(seq 600); do wmctrl -l | grep -q '${title}' && exit 0; sleep 1; done; exit 1`, { timeout: 900 }),
];

/** A window is there before what is in it has been drawn. */
const drawn: ActionInput[] = slow({ type: 'wait', seconds: 1 }, 4);

const done = { status: 'completed', score: 1 } as const;

const cell = (value: number | string): string =>
  typeof value === 'number'
    ? `<table:table-cell office:value-type="float" office:value="${value}"/>`
    : `<table:table-cell office:value-type="string"><text:p>${value}</text:p></table:table-cell>`;

/** A sheet as LibreOffice saves it to one file of text, in which a getter finds what was saved. */
const sheet = (rows: (number | string)[][]): string =>
  `<?xml version="1.0" encoding="UTF-8"?>
<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" office:version="1.3" office:mimetype="application/vnd.oasis.opendocument.spreadsheet">
<office:body><office:spreadsheet><table:table table:name="Budget">
${rows.map((row) => `<table:table-row>${row.map(cell).join('')}</table:table-row>`).join('\n')}
</table:table></office:spreadsheet></office:body></office:document>
`;

const ORDER = `<!doctype html>
<meta charset="utf-8"><title>Order</title>
<form action="thanks.html"><p><label>Name <input name="name"></label></p><p><button>Order</button></p></form>
`;
const THANKS = `<!doctype html>
<meta charset="utf-8"><title>Thanks</title>
<p>Thank you.</p><script>document.title = 'Thanks, ' + new URLSearchParams(location.search).get('name')</script>
`;

const NOTE = 'The meeting is moved to Thursday at 10.';
const PROGRAM = 'def area(width, height):\n    return width + height\n';

/** A job of each application of the office image, played through mouse and keyboard and scored by what is then in the guest. */
export const OFFICE_JOBS: readonly DemoJob[] = [
  {
    job: {
      job_id: 'calc-total',
      instruction: 'In the open budget, write the sum of B1 to B3 into B4 as a formula, and save the file.',
      setup: [
        file('Documents/budget.fods', sheet([['Rent', 900], ['Food', 350.5], ['Travel', 120], ['Total']])),
        ...open(['libreoffice', '--calc', '/home/user/Documents/budget.fods'], 'budget.fods'),
      ],
      policy: script(
        drawn,
        // B4, below the headings of columns and rows.
        slow(click({ x: 164, y: 247 })),
        slow(type('=SUM(B1:B3)\n')),
        slow(hotkey('ctrl', 's'), 3),
      ),
      evaluator: prints(
        `grep -o 'table:formula="[^"]*" office:value-type="float" office:value="[^"]*"' ~/Documents/budget.fods`,
        'table:formula="of:=SUM([.B1:.B3])" office:value-type="float" office:value="1370.5"\n',
      ),
      limits,
    },
    expect: done,
  },
  {
    job: {
      job_id: 'writer-note',
      instruction: `Write this line in LibreOffice Writer and save it as note.odt in Documents:\n${NOTE}`,
      policy: script(
        slow(click(WRITER), 8),
        slow(type(NOTE)),
        slow(hotkey('ctrl', 's'), 4),
        slow(type('/home/user/Documents/note.odt')),
        slow(key('enter'), 4),
      ),
      evaluator: prints(
        `cd ~/Documents && unzip -p note.odt content.xml | grep -o '<text:p[ >].*</text:p>' | sed 's/<[^>]*>//g'`,
        `${NOTE}\n`,
      ),
      limits,
    },
    expect: done,
  },
  {
    job: {
      job_id: 'browser-order',
      instruction: 'Order in the name of Ada Lovelace with the form in the browser.',
      setup: [
        file('Documents/order.html', ORDER),
        file('Documents/thanks.html', THANKS),
        ...open(['chromium', '/home/user/Documents/order.html'], 'Order - Chromium'),
      ],
      policy: script(drawn, slow(click({ x: 140, y: 114 })), slow(type('Ada Lovelace')), slow(key('enter'), 6)),
      evaluator: {
        func: 'check_include_exclude',
        result: { type: 'vm_command_line', command: 'wmctrl -l', shell: true },
        expected: { type: 'rule', rules: { include: ['Thanks, Ada Lovelace - Chromium'] } },
      },
      limits,
    },
    expect: done,
  },
  {
    job: {
      job_id: 'editor-fix',
      instruction: 'In the open program, make area() multiply instead of add, and save it.',
      setup: [file('area.py', PROGRAM), ...open(['geany', '/home/user/area.py'], 'area.py.*Geany')],
      policy: script(
        drawn,
        slow(hotkey('ctrl', 'end')),
        slow(key('up')),
        slow(hotkey('shift', 'end')),
        slow(type('    return width * height')),
        slow(hotkey('ctrl', 's'), 2),
      ),
      evaluator: prints(`cd && python3 -c 'from area import area; print(area(6, 7))'`, '42\n'),
      limits,
    },
    expect: done,
  },
];
