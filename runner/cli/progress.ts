import { MultiBar, Presets, type SingleBar } from 'cli-progress';

/** One step of long work: `fraction` is 0 to 1, or null where it is not known. */
interface Progress {
  /** A plain log has one line each time this changes. */
  phase: string;
  fraction: number | null;
  /** What a person reads; the phase where it is empty. */
  message: string;
}

/** Shows long work: a bar on a terminal, else one plain line whenever the phase changes. */
export interface ProgressView {
  report(progress: Progress): void;
  /** Fills the bar of what was reported; nothing where nothing was. */
  done(): void;
  /** Leaves the last state standing. Idempotent. */
  stop(): void;
}

/**
 * @param title what is being done, e.g. `image debian-desktop`
 * @param stream standard error, for standard output belongs to what a command prints
 */
export function progressView(title: string, stream: NodeJS.WriteStream = process.stderr): ProgressView {
  return stream.isTTY ? terminalView(title, stream) : plainView(title, stream);
}

function plainView(title: string, stream: NodeJS.WriteStream): ProgressView {
  let last: string | undefined;
  return {
    report({ phase, message }) {
      if (phase !== last) stream.write(`${title}: ${message || phase}\n`);
      last = phase;
    },
    done() {},
    stop() {},
  };
}

/** Columns of a bar: what is left of a narrow terminal belongs to the words. */
const BAR_COLUMNS = 24;

function terminalView(title: string, stream: NodeJS.WriteStream): ProgressView {
  // Made with the first report: one that never reports leaves no line behind.
  let open: { bars: MultiBar; bar: SingleBar } | undefined;
  return {
    report({ phase, fraction, message }) {
      const payload = { title, message: message || phase };
      open ??= openBar(stream, payload);
      // An unknown fraction leaves the bar where it is: it never goes back.
      if (fraction === null) open.bar.update(payload);
      else open.bar.update(Math.round(fraction * 1_000), payload);
    },
    done() {
      open?.bar.update(1_000, { title, message: 'done' });
    },
    stop() {
      open?.bars.stop();
      open = undefined;
    },
  };
}

function openBar(stream: NodeJS.WriteStream, payload: { title: string; message: string }) {
  // The time tells that it lives, where a fraction stands still for a minute.
  const format = '{title} [{bar}] {percentage}%  {duration_formatted}  {message}';
  const bars = new MultiBar(
    { stream, format, barsize: BAR_COLUMNS, hideCursor: true, clearOnComplete: false, linewrap: false },
    Presets.shades_classic,
  );
  return { bars, bar: bars.create(1_000, 0, payload) };
}
