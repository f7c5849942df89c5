#!/usr/bin/env node
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { prepare } from './prepare.mjs';

await import(pathToFileURL(path.join(prepare(), 'runner/main.js')).href);
