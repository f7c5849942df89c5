import type { KernelFolders } from './host-now.ts';
import { memoryTraffic } from './usage.ts';

/** Memory bandwidth of acting replicas, from looks at the host's memory traffic. */
export class BandwidthMeter {
  #before: { bytes: number; atMs: number; acting: number } | null = null;

  /**
   * @returns bytes a second of one acting replica since the last look; null where the host does not measure it, none acts, or their
   * number changed meanwhile
   */
  look(kernel: KernelFolders, acting: number, atMs = performance.now()): number | null {
    const bytes = memoryTraffic(kernel);
    const before = this.#before;
    this.#before = bytes === null ? null : { bytes, atMs, acting };
    if (bytes === null || before === null || acting === 0 || before.acting !== acting) return null;
    return ((bytes - before.bytes) / (atMs - before.atMs) / acting) * 1_000;
  }
}
