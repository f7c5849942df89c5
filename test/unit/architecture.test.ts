import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';

const root = path.resolve(import.meta.dirname, '../..');

/** Each room, and the rooms it may import: the arrows of the README's diagram. A room may always import itself. */
const MAY_IMPORT: Record<string, readonly string[]> = {
  schemas: [],
  functions: ['schemas'],
  images: ['schemas', 'runner/system'],
  infra: ['schemas', 'runner/system'],
  'runner/system': [],
  'runner/qemu': ['schemas', 'functions', 'runner/system'],
  'runner/storage': ['schemas', 'functions', 'runner/system'],
  'runner/replica': ['schemas', 'functions', 'runner/qemu', 'runner/storage', 'runner/system'],
  'runner/bus': ['schemas', 'functions', 'runner/system'],
  'runner/job': ['schemas', 'functions', 'runner/bus', 'runner/storage', 'runner/replica'],
  'runner/host': [
    'schemas',
    'functions',
    'runner/bus',
    'runner/storage',
    'runner/replica',
    'runner/qemu',
    'runner/job',
    'runner/system',
  ],
  'runner/cli': ['*'],
  'runner/main': ['runner/cli'],
};

function roomOf(file: string): string {
  const parts = path.relative(root, file).split(path.sep);
  if (parts[0] !== 'runner') return parts[0] ?? '';
  return parts.length === 2 ? `runner/${parts[1]?.replace(/\.ts$/, '')}` : `runner/${parts[1]}`;
}

function sources(folder: string): string[] {
  return readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => path.join(root, folder, name));
}

function imports(file: string): string[] {
  const text = readFileSync(file, 'utf8');
  return [...text.matchAll(/(?:from|import)\s*\(?\s*'(\.{1,2}\/[^']+)'/g)].map((match) =>
    path.resolve(path.dirname(file), match[1] ?? ''),
  );
}

describe('imports run one way', () => {
  const files = ['schemas', 'functions', 'images', 'infra', 'runner'].flatMap(sources);

  it('sees the sources', () => expect(files.length).toBeGreaterThan(10));

  it.each(files.map((file) => [path.relative(root, file), file]))('%s', (_, file) => {
    const room = roomOf(file);
    const allowed = MAY_IMPORT[room];
    expect(allowed, `room ${room} has no line in the table`).toBeDefined();
    const wrong = imports(file)
      .map(roomOf)
      .filter(
        (target) => target !== room && !allowed?.includes(target) && (!allowed?.includes('*') || target === 'test'),
      );
    expect(wrong).toEqual([]);
  });

  it('schemas know nothing but zod', () => {
    const foreign = sources('schemas')
      .filter((file) => !file.endsWith('export.ts'))
      .flatMap((file) => [...readFileSync(file, 'utf8').matchAll(/from '([^.'][^']*)'/g)].map((match) => match[1]));
    expect(new Set(foreign)).toEqual(new Set(['zod']));
  });
});
