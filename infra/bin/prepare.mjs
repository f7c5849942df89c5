// Makes a fresh clone runnable with nothing but Node: dependencies by `npm ci`, the program by `tsc`.
// Plain JavaScript on Node's own modules: it runs before anything is installed.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const SOURCES = ['functions', 'runner', 'schemas', 'infra', 'images', 'test'];
const MINIMUM_NODE = [20, 19];
/** Builds kept, so that a process still running on an older one can load its late imports. */
const BUILDS_KEPT = 4;
const builds = path.join(root, 'dist');
/** What flock says when somebody else installs. */
const LOCKED_EXIT = 75;
/** Installs, unless that was done while it waited. @param $1 stamp file @param $2 what it holds then */
const INSTALL = `[ "$(cat "$1" 2> /dev/null)" = "$2" ] && exit
echo 'gymbus: installing npm dependencies ...'
npm ci --no-audit --no-fund --loglevel=error && printf %s "$2" > "$1" || exit 1`;

/**
 * Installs and compiles what is missing or out of date, saying what it does on standard error.
 * @returns {string} the folder with the compiled program
 */
export function prepare() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major < MINIMUM_NODE[0] || (major === MINIMUM_NODE[0] && minor < MINIMUM_NODE[1])) {
    fail(`Node ${MINIMUM_NODE.join('.')} or newer is needed, this is ${process.versions.node}.`);
  }
  installDependencies();
  return compile();
}

function installDependencies() {
  const lock = path.join(root, 'package-lock.json');
  if (!existsSync(lock)) return; // installed as a package: npm has done it
  const digest = createHash('sha256').update(readFileSync(lock)).digest('hex');
  const stamp = path.join(root, 'node_modules', '.gymbus-installed');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === digest) return;
  checkWritable(path.dirname(stamp));
  checkWritable(builds);
  // One at a time: npm begins by removing what another has just installed.
  const locked = [
    '--conflict-exit-code',
    String(LOCKED_EXIT),
    path.join(builds, '.install.lock'),
    'sh',
    '-c',
    INSTALL,
    'sh',
  ];
  const { status } = attempt('flock', ['--nonblock', ...locked, stamp, digest]);
  if (status === 0) return;
  if (status !== LOCKED_EXIT) fail('npm ci failed; its output is above.');
  console.error('gymbus: another one is installing npm dependencies, waiting for it ...');
  if (attempt('flock', [...locked, stamp, digest]).status !== 0) fail('npm ci failed; its output is above.');
}

/** Compiles into a folder named by the digest of all sources: whole or absent, and safe with several processes at once. */
function compile() {
  const digest = createHash('sha256');
  const assets = [];
  for (const folder of SOURCES) {
    for (const file of filesBelow(path.join(root, folder))) {
      const relative = path.relative(root, file);
      digest.update(`${relative}\0`).update(readFileSync(file));
      if (!file.endsWith('.ts')) assets.push(relative);
    }
  }
  for (const file of ['package.json', 'tsconfig.json']) digest.update(readFileSync(path.join(root, file)));
  const target = path.join(builds, digest.digest('hex').slice(0, 16));
  if (existsSync(target)) return target;
  console.error('gymbus: compiling ...');
  const partial = path.join(builds, `.partial-${process.pid}`);
  checkWritable(builds);
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true });
  run(process.execPath, [path.join(root, 'node_modules/typescript/bin/tsc'), '-p', root, '--outDir', partial], 'tsc');
  for (const asset of assets) cpSync(path.join(root, asset), path.join(partial, asset), { verbatimSymlinks: true });
  try {
    renameSync(partial, target);
  } catch (error) {
    rmSync(partial, { recursive: true, force: true });
    if (!existsSync(target)) throw error; // else another process was first
  }
  removeOldBuilds(builds, target);
  return target;
}

function removeOldBuilds(builds, current) {
  const byAge = readdirSync(builds)
    .map((name) => path.join(builds, name))
    .filter((build) => build !== current)
    .map((build) => ({ build, age: Date.now() - statSync(build).mtimeMs }))
    .sort((a, b) => a.age - b.age);
  for (const { build, age } of byAge.slice(BUILDS_KEPT - 1)) {
    if (age > 3_600_000) rmSync(build, { recursive: true, force: true });
  }
}

function filesBelow(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => path.join(entry.parentPath ?? entry.path, entry.name))
    .filter((file) => !file.includes('__pycache__'))
    .sort();
}

function run(command, args, what) {
  if (attempt(command, args).status !== 0) fail(`${what} failed; its output is above.`);
}

function attempt(command, args) {
  const ended = spawnSync(command, args, { cwd: root, stdio: ['ignore', 2, 2] });
  if (ended.error) fail(`${command} cannot be run: ${ended.error.message}`);
  return ended;
}

/** A checkout of another user can be run, but not made ready. */
function checkWritable(folder) {
  try {
    mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.W_OK);
  } catch (error) {
    fail(
      `${folder} is out of date and cannot be written to (${error.code}); run npx gymbus --version in ${root} once, as its owner.`,
    );
  }
}

function fail(message) {
  console.error(`gymbus: ${message}`);
  process.exit(1);
}
