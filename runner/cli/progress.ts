import progress, { type GenericFormatter, type SingleBar } from 'cli-progress';

/** One step of long work: `fraction` is 0 to 1, or null where it is not known. */
interface Progress {
  /** A plain log has one line each time this changes, and one a minute while it does not. */
  phase: string;
  fraction: number | null;
  /** What a person reads; the phase where it is empty. */
  message: string;
}

/** Shows long work: on a terminal a line that is written over, with a bar where it is known how far the work is; else one plain line whenever the phase changes, and one a minute while it lasts. */
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

/** A log that says nothing for longer looks like one of something that hangs. */
const AGAIN_MS = 60_000;

function plainView(title: string, stream: NodeJS.WriteStream): ProgressView {
  let last: string | undefined;
  let [beganMs, saidMs] = [0, 0];
  return {
    report({ phase, message }) {
      const nowMs = performance.now();
      const what = `${title}: ${message || phase}`;
      if (phase !== last) {
        stream.write(`${what}\n`);
        [beganMs, saidMs] = [nowMs, nowMs];
      } else if (nowMs - saidMs >= AGAIN_MS) {
        stream.write(`${what}, for ${Math.round((nowMs - beganMs) / 60_000)} min so far\n`);
        saidMs = nowMs;
      }
      last = phase;
    },
    done() {},
    stop() {},
  };
}

/** Columns of a bar: what is left of a narrow terminal belongs to the words. */
const BAR_COLUMNS = 24;

/** The time tells that it lives; a percentage is only shown of what is known. */
const WITH_BAR = '{title} [{bar}] {percentage}%  {duration_formatted}  {message}';
const WITHOUT_BAR = '{title}  {duration_formatted}  {message}';
const STEPS = 1_000;

interface Shown {
  title: string;
  message: string;
  /** Whether any report has said how far the work is. */
  known: boolean;
}

function terminalView(title: string, stream: NodeJS.WriteStream): ProgressView {
  // Made with the first report: one that never reports leaves no line behind.
  let bar: SingleBar | undefined;
  let known = false;
  return {
    report({ phase, fraction, message }) {
      known ||= fraction !== null;
      const shown: Shown = { title, message: message || phase, known };
      bar ??= openBar(stream, shown);
      // An unknown fraction leaves the bar where it is: it never goes back.
      if (fraction === null) bar.update(shown);
      else bar.update(Math.round(fraction * STEPS), shown);
    },
    done() {
      const shown: Shown = { title, message: 'done', known };
      bar?.update(STEPS, shown);
    },
    stop() {
      bar?.stop();
      bar = undefined;
    },
  };
}

/** One bar alone writes only when what it shows has changed; several together move the cursor ten times a second. */
function openBar(stream: NodeJS.WriteStream, shown: Shown): SingleBar {
  const format: GenericFormatter = (options, params, payload: Shown) =>
    progress.Format.Formatter({ ...options, format: payload.known ? WITH_BAR : WITHOUT_BAR }, params, payload);
  const bar = new progress.SingleBar(
    // Whoever interrupts a command is answered by the command, not by its bar.
    { stream, format, barsize: BAR_COLUMNS, hideCursor: true, linewrap: false, gracefulExit: false },
    progress.Presets.shades_classic,
  );
  bar.start(STEPS, 0, shown);
  return bar;
}
