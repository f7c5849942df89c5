import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { QmpSilent } from '../qemu/errors.ts';
import type { Machine } from '../qemu/machine.ts';

/** What is said when not even the machine itself can be asked. */
export const SILENT_QEMU = 'qemu itself does not answer';

const AGENT_DEADLINE_MS = 5_000;
/** Looks at the processor, so far apart: a kernel that works and one that spins differ only over some time. */
const SAMPLES = 10;
const SAMPLE_MS = 100;

/** What a processor was doing at one moment. */
export interface ProcessorSample {
  /** Privilege level: 0 the kernel, 3 a program. */
  level: number;
  halted: boolean;
  /** Where it was, in hex. */
  at: string;
}

/**
 * Why a guest's helper is silent, as far as can be seen from outside: by its second voice, the QEMU guest agent, and by what its processors
 * are doing. @throws the signal's reason
 */
export async function nameSilence(machine: Machine, signal: AbortSignal): Promise<string> {
  if (await agentAnswers(machine.agent, signal)) return 'the helper in the guest hangs; its agent answers';
  const samples: ProcessorSample[] = [];
  try {
    for (let n = 0; n < SAMPLES; n += 1) {
      samples.push(...parseRegisters(await machine.registers()));
      await sleep(SAMPLE_MS, undefined, { signal });
    }
  } catch (error) {
    if (error instanceof QmpSilent) return SILENT_QEMU;
    throw error;
  }
  return nameSamples(samples);
}

/** Pure. */
export function nameSamples(samples: readonly ProcessorSample[]): string {
  const [first] = samples;
  const silent = 'the guest is silent';
  if (!first) return silent;
  if (samples.every(({ halted }) => halted)) return `${silent}: its processor sleeps, and nothing wakes it`;
  if (samples.every(({ halted, level }) => !halted && level === 0)) {
    return `${silent}: soft lockup, its kernel keeps the processor (at ${samples.at(-1)?.at})`;
  }
  // The kernel's clock interrupts a program, too.
  if (
    samples.every(({ halted }) => !halted) &&
    samples.filter(({ level }) => level !== 0).length > samples.length / 2
  ) {
    return `${silent}: a program keeps its processor from all others`;
  }
  return `${silent}, though its processor works`;
}

/** Of 64 processors, some hundred kilobytes. */
const MOST_REGISTER_CHARS = 256 * 1_024;

/** Reads what QEMU's monitor prints of each processor for `info registers -a`. */
export function parseRegisters(text: string): ProcessorSample[] {
  const samples: ProcessorSample[] = [];
  for (const line of text.slice(0, MOST_REGISTER_CHARS).split('\n')) {
    // One by one: a pattern of all three would go back and forth over what a guest may have made of them.
    const at = /^[RE]IP=([0-9a-f]{1,16}) /.exec(line)?.[1];
    const level = /\bCPL=(\d) /.exec(line)?.[1];
    const halted = /\bHLT=(\d)/.exec(line)?.[1];
    if (at && level && halted) samples.push({ at, level: Number(level), halted: halted === '1' });
  }
  return samples;
}

/** Whether the QEMU guest agent answers a ping. */
export function agentAnswers(agent: Duplex, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const finish = (answers: boolean): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
      agent.off('data', onData).off('error', onAbort);
      resolve(answers);
    };
    const onAbort = (): void => finish(false);
    const onData = (): void => finish(true);
    const timer = setTimeout(onAbort, AGENT_DEADLINE_MS);
    signal.addEventListener('abort', onAbort, { once: true });
    agent.once('error', onAbort);
    agent.once('data', onData);
    agent.write('{"execute": "guest-ping"}\n');
  });
}
