import { MultiBar, Presets, type SingleBar } from 'cli-progress';

/** One step of long work: `fraction` is 0 to 1, or null where it is not known. */
export interface Progress {
  phase: string;
  fraction: number | null;
  message: string;
}

/** Shows long work: a bar on a terminal, else one plain line whenever the phase changes. On standard error. */
export interface ProgressView {
  report(progress: Progress): void;
  /** Leaves the last state standing. Idempotent. */
  stop(): void;
}

/** @param title what is being done, e.g. `image debian-desktop` */
export function progressView(title: string, stream: NodeJS.WriteStream = process.stderr): ProgressView {
  return stream.isTTY ? terminalView(title, stream) : plainView(title, stream);
}

function plainView(title: string, stream: NodeJS.WriteStream): ProgressView {
  let last = '';
  return {
    report({ phase, message }) {
      const line = `${title}: ${phase}${message && message !== phase ? ` - ${message}` : ''}`;
      if (phase !== last) stream.write(`${line}\n`);
      last = phase;
    },
    stop() {},
  };
}

function terminalView(title: string, stream: NodeJS.WriteStream): ProgressView {
  const bars = new MultiBar(
    {
      stream,
      format: '{title} [{bar}] {percentage}% | {message}',
      hideCursor: true,
      clearOnComplete: false,
      linewrap: false,
    },
    Presets.shades_classic,
  );
  let bar: SingleBar | undefined;
  return {
    report({ phase, fraction, message }) {
      const payload = { title, message: message && message !== phase ? `${phase}: ${message}` : phase };
      bar ??= bars.create(1_000, 0, payload);
      // An unknown fraction leaves the bar where it is: it never goes back.
      if (fraction === null) bar.update(payload);
      else bar.update(Math.round(fraction * 1_000), payload);
    },
    stop() {
      bars.stop();
    },
  };
}
