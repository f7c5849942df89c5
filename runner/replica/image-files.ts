import type { Region } from '../qemu/picture.ts';

/** A command run in the guest while a template is made; anything but exit 0 within its time fails the template. */
interface PreparationCommand {
  argv: string[];
  user: 'user' | 'root';
  timeout_s: number;
}

/** What the engine needs to know of a guest image: a finished build in the image store has all of it. */
export interface ImageFiles {
  readonly name: string;
  /** Of everything that went into the image. */
  readonly digest: string;
  readonly diskPath: string;
  readonly kernelPath: string;
  readonly initrdPath: string;
  readonly manifest: {
    resolution: { width: number; height: number };
    memory_mib: number;
    vcpus: number;
    /** Of the kernel. */
    cmdline: string;
    user: string;
    /** When a booted guest is a settled desktop. */
    readiness: {
      windows: { class: string; type: string }[];
      processes: string[];
      equal_pictures_ms: number;
      timeout_s: number;
    };
    warmup: PreparationCommand[];
    volatile_regions: Region[];
    /** What its jobs may ask for: names, `*.` before and `:port` behind them. */
    network: { hosts: string[] };
  };
}

/** Every recipe gives its desktop user this one, as tasks for such desktops expect. */
export const DESKTOP_PASSWORD = 'password';
