#!/usr/bin/env node
// `npm test`: installs what is missing, then runs every check there is. Arguments go to vitest, and leave the other checks out.
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { prepare } from './prepare.mjs';

const { runChecks } = await import(pathToFileURL(path.join(prepare(), 'test/run.js')).href);
process.exitCode = await runChecks(process.argv.slice(2));
