import { type Logger, pino, stdTimeFunctions } from 'pino';
import pretty from 'pino-pretty';

export type { Logger } from 'pino';

/**
 * The process's log, on standard error: standard output belongs to what a command prints.
 * JSON for machines, pretty on a terminal; the message is constant and the rest are fields.
 * @param file appended to instead, where the terminal is for something else
 */
export function createLog(settings: { level: string; format: 'auto' | 'json' | 'pretty' }, file?: string): Logger {
  const onTerminal =
    file === undefined && (settings.format === 'pretty' || (settings.format === 'auto' && process.stderr.isTTY));
  const options = {
    level: settings.level,
    timestamp: stdTimeFunctions.isoTime,
    base: null,
    // Secrets never reach a log, whatever object is handed to it.
    redact: { paths: ['*.password', '*.secretAccessKey', '*.token'], censor: '(secret)' },
  };
  return onTerminal
    ? pino(options, pretty({ destination: 2, sync: true, ignore: 'pid,hostname', translateTime: 'SYS:HH:MM:ss.l' }))
    : pino(options, pino.destination({ dest: file ?? 2, sync: true }));
}
