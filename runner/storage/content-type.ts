import path from 'node:path';

const TYPES: Record<string, string> = {
  '.json': 'application/json',
  '.jsonl': 'application/x-ndjson',
  '.png': 'image/png',
  '.xml': 'application/xml',
  '.html': 'text/html; charset=utf-8',
  '.log': 'text/plain; charset=utf-8',
};

/** Media type of an attempt's file by its name. */
export function contentTypeOf(name: string): string {
  return TYPES[path.extname(name)] ?? 'application/octet-stream';
}
