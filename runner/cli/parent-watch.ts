import { readFile } from 'node:fs/promises';

/** A killed npx is noticed within this time. */
const LOOK_MS = 500;
/** npx, a shell, this process: npm puts no more between. */
const MOST_ANCESTORS = 5;

/**
 * A program started through npm is told of a Ctrl-C, but not when only npm itself is killed. This looks whether the npm
 * it was started by is still there. Started in any other way it may outlive its parent, and nothing is watched.
 * @param onGone called once
 */
export async function watchNpm(onGone: () => void): Promise<Disposable> {
  const npm = await npmAncestor();
  if (npm === null) return { [Symbol.dispose]: () => undefined };
  const timer = setInterval(async () => {
    const ticks = await startTicks(npm.pid).catch(() => null);
    // What cannot be read now, with all files that may be open in use, is read the next time.
    if (ticks === null || ticks === npm.ticks) return;
    clearInterval(timer);
    onGone();
  }, LOOK_MS);
  timer.unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** The nearest ancestor that is npm or npx, by the title npm gives itself. */
async function npmAncestor(): Promise<{ pid: number; ticks: string } | null> {
  let pid = process.ppid;
  for (let i = 0; i < MOST_ANCESTORS && pid > 1; i++) {
    const [command, stat] = await Promise.all([readProc(pid, 'cmdline'), readProc(pid, 'stat')]);
    const fields = statFields(stat);
    if (/^(npm|npx)\b|\/(npm|npx)(-cli\.js)?\0/.test(command)) return { pid, ticks: fields.ticks };
    pid = fields.parent;
  }
  return null;
}

async function startTicks(pid: number): Promise<string> {
  return statFields(await readProc(pid, 'stat')).ticks;
}

/** Fields 4 and 22 of /proc/PID/stat; the command, field 2, may hold spaces and brackets. A zombie counts as gone. */
function statFields(stat: string): { parent: number; ticks: string } {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  if (fields[0] === 'Z') return { parent: 0, ticks: '' };
  return { parent: Number(fields[1] ?? 0), ticks: fields[19] ?? '' };
}

async function readProc(pid: number, name: string): Promise<string> {
  return readFile(`/proc/${pid}/${name}`, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ESRCH') return '';
    throw error;
  });
}
