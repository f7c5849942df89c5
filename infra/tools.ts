import { access, constants, mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { execa } from 'execa';
import { findTool } from '../runner/system/find-tool.ts';
import { lockFile } from '../runner/system/lock.ts';

interface ToolDefinition {
  version: string;
  module: string;
  /** One on PATH will do when it is at least this; other tools are only ever our own build. */
  minimumOnPath?: readonly [number, number];
}

/** Servers and command-line tools of the local stack, each at the version it was tested at. */
export const TOOLS = {
  'nats-server': { version: '2.15.2', module: 'github.com/nats-io/nats-server/v2', minimumOnPath: [2, 12] },
  nats: { version: '0.5.0', module: 'github.com/nats-io/natscli/nats' },
  versitygw: { version: '1.8.0', module: 'github.com/versity/versitygw/cmd/versitygw' },
} as const satisfies Record<string, ToolDefinition>;
export type ToolName = keyof typeof TOOLS;

export interface ToolOptions {
  /** Where built tools are kept, below `bin/`. */
  cacheDir: string;
  /** Told, at most once a second, how a build goes: for people, and in one word. How many packages there are is not known before. */
  onProgress?: (message: string, phase: 'waiting' | 'building' | 'built') => void;
  signal?: AbortSignal | undefined;
}

/** A tool is missing and cannot be built here; the message names the remedy. */
export class ToolMissing extends Error {
  override readonly name = 'ToolMissing';
}

const MINIMUM_GO = [1, 26] as const;
/** The largest takes about a minute on two cores with nothing cached. */
const BUILD_MS = 20 * 60_000;
const PROBE_MS = 10_000;
const PROGRESS_MS = 1_000;

/**
 * Finds a tool, or builds it from source into the cache: whole or absent, and once, however many ask.
 * @returns the path of its binary
 * @throws ToolMissing without a Go toolchain that can build it
 */
export async function ensureTool(name: ToolName, options: ToolOptions): Promise<string> {
  const tool: ToolDefinition = TOOLS[name];
  const found = await findBuilt(name, options.cacheDir);
  if (found !== null) return found.file;
  const folder = folderOf(name, options.cacheDir);
  const binary = path.join(folder, name);
  const bin = path.dirname(folder);
  await using _lock = await lockFile(path.join(bin, `.lock-${name}-${tool.version}`), {
    signal: options.signal,
    onWait: () => options.onProgress?.('another process builds it; waiting', 'waiting'),
  });
  if (await isExecutable(binary)) return binary;
  await checkGo(name, tool);
  await removeLeftovers(bin, `.building-${name}-`);
  await mkdir(bin, { recursive: true });
  const building = await mkdtemp(path.join(bin, `.building-${name}-`));
  try {
    await build(name, tool, building, options);
    await rm(folder, { recursive: true, force: true });
    await rename(building, folder);
  } finally {
    await rm(building, { recursive: true, force: true });
  }
  return binary;
}

/** The tool as it is on PATH or in the cache; null where it would have to be built. */
export async function findBuilt(name: ToolName, cacheDir: string): Promise<{ file: string; version: string } | null> {
  const { version, minimumOnPath }: ToolDefinition = TOOLS[name];
  const onPath = minimumOnPath ? await fitOnPath(name, minimumOnPath) : null;
  if (onPath !== null) return onPath;
  const file = path.join(folderOf(name, cacheDir), name);
  return (await isExecutable(file)) ? { file, version } : null;
}

function folderOf(name: ToolName, cacheDir: string): string {
  return path.join(cacheDir, 'bin', `${name}-${TOOLS[name].version}`);
}

async function build(name: string, tool: ToolDefinition, target: string, options: ToolOptions): Promise<void> {
  const { onProgress, signal } = options;
  const startedAtMs = performance.now();
  onProgress?.(`building ${tool.version} from source, about a minute`, 'building');
  // -v names each package as it is compiled; modules are named as they are fetched.
  const child = execa('go', ['install', '-v', `${tool.module}@v${tool.version}`], {
    env: { GOBIN: target, GOFLAGS: '-buildvcs=false', CGO_ENABLED: '0' },
    stdin: 'ignore',
    all: true,
    timeout: BUILD_MS,
    reject: false,
    ...(signal === undefined ? {} : { cancelSignal: signal }),
  });
  let packages = 0;
  let toldAtMs = performance.now();
  for await (const line of child.iterable({ from: 'all' })) {
    if (!line.startsWith('go: ')) packages += 1;
    if (performance.now() - toldAtMs < PROGRESS_MS) continue;
    toldAtMs = performance.now();
    onProgress?.(`building ${tool.version} from source: ${packages} packages compiled`, 'building');
  }
  const result = await child;
  signal?.throwIfAborted();
  if (result.failed) {
    const tail = result.all.split('\n').slice(-15).join('\n');
    throw new ToolMissing(`building ${name} ${tool.version} failed (${result.shortMessage}):\n${tail}`, {
      cause: result,
    });
  }
  onProgress?.(`built in ${Math.round((performance.now() - startedAtMs) / 1000)} s`, 'built');
}

/** @throws ToolMissing */
async function checkGo(name: string, tool: ToolDefinition): Promise<void> {
  const remedy = `install Go ${MINIMUM_GO.join('.')} or newer (https://go.dev/doc/install) and put it on PATH`;
  const or = tool.minimumOnPath ? `, or put ${name} ${tool.minimumOnPath.join('.')} or newer on PATH` : '';
  const result = await execa('go', ['env', 'GOVERSION'], { reject: false, timeout: PROBE_MS });
  if (result.failed) {
    throw new ToolMissing(`${name} ${tool.version} must be built and there is no Go here: ${remedy}${or}`, {
      cause: result,
    });
  }
  if (!atLeast(result.stdout, MINIMUM_GO)) {
    throw new ToolMissing(`${name} ${tool.version} must be built and Go here is ${result.stdout}: ${remedy}${or}`);
  }
}

async function fitOnPath(name: string, minimum: readonly [number, number]) {
  const file = await findTool(name);
  if (file === null) return null;
  const { failed, stdout } = await execa(file, ['--version'], { reject: false, timeout: PROBE_MS });
  const version = /\d+\.\d+[\w.-]*/.exec(stdout)?.[0] ?? '';
  return !failed && atLeast(version, minimum) ? { file, version } : null;
}

/** Reads the first `<major>.<minor>` of a text. */
export function atLeast(text: string, [minMajor, minMinor]: readonly [number, number]): boolean {
  const match = /(\d+)\.(\d+)/.exec(text);
  if (match === null) return false;
  const [major, minor] = [Number(match[1]), Number(match[2])];
  return major > minMajor || (major === minMajor && minor >= minMinor);
}

async function isExecutable(file: string): Promise<boolean> {
  return access(file, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** What a killed build left; the lock says that nobody is building. */
async function removeLeftovers(folder: string, prefix: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (name.startsWith(prefix)) await rm(path.join(folder, name), { recursive: true, force: true });
  }
}
