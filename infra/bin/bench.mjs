#!/usr/bin/env node
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { prepare } from './prepare.mjs';

const { main } = await import(pathToFileURL(path.join(prepare(), 'test/bench/main.js')).href);
process.exitCode = await main(process.argv.slice(2));
