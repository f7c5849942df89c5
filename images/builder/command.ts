import { execa } from 'execa';
import { findTool, toolFolders } from '../../runner/system/find-tool.ts';
import { imageRequirements, type Requirement } from '../requirements.ts';

/** PATH for the tools of a build. */
export const toolPath = toolFolders().join(':');

export interface RunOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onLine?: ((line: string) => void) | undefined;
  readonly env?: Record<string, string>;
  readonly timeoutMs: number;
}

/** Lines of output kept for the message of a failure. */
const TAIL_LINES = 15;

/**
 * Run a program in a process and mount namespace of its own, and return what it printed on stdout.
 *
 * The namespace is why an interrupted build leaves nothing running or mounted: when this process dies, however it
 * dies, the namespace's first process is killed by the kernel, and with it everything inside and every mount.
 */
export async function runContained(argv: readonly [string, ...string[]], options: RunOptions): Promise<string> {
  const contained = ['--mount', '--pid', '--fork', '--kill-child=SIGKILL', '--mount-proc', '--', ...argv];
  const child = execa('setpriv', ['--pdeathsig', 'KILL', '--', 'unshare', ...contained], {
    env: { PATH: toolPath, ...options.env },
    stdin: 'ignore',
    all: true,
    reject: false,
    timeout: options.timeoutMs,
    // unshare itself ignores gentler signals while it waits.
    killSignal: 'SIGKILL',
    ...(options.signal ? { cancelSignal: options.signal } : {}),
  });
  const tail: string[] = [];
  for await (const line of child.iterable({ from: 'all', preserveNewlines: false })) {
    tail.push(line);
    if (tail.length > TAIL_LINES) tail.shift();
    options.onLine?.(line);
  }
  const result = await child;
  options.signal?.throwIfAborted();
  if (!result.failed) return result.stdout;
  const why = result.timedOut
    ? `did not end within ${options.timeoutMs / 1000} s`
    : `failed (${result.exitCode ?? result.signal})`;
  throw new Error(`${argv.join(' ').slice(0, 200)} ${why}:\n${tail.join('\n')}`);
}

/** Every tool of the list, or an error that names the apt command which brings the missing ones. */
export async function checkTools(requirements: readonly Requirement[] = imageRequirements): Promise<void> {
  const missing: Requirement[] = [];
  for (const requirement of requirements) if ((await findTool(requirement.tool)) === null) missing.push(requirement);
  if (missing.length === 0) return;
  const tools = missing.map((requirement) => requirement.tool).join(', ');
  const packages = [...new Set(missing.map((requirement) => requirement.aptPackage))].join(' ');
  throw new Error(`cannot build an image without ${tools}: apt-get install -y ${packages}`);
}
