import { chooseAccelerator } from '../qemu/accelerator.ts';
import { findQemu } from '../qemu/binary.ts';
import { Launcher } from '../qemu/launcher.ts';
import type { PoolOrder } from './create-pool.ts';
import type { Engine } from './engine.ts';
import { openIsolation, sayIsolation } from './isolation.ts';
import { openMerging } from './ksm.ts';
import { openRunRoot } from './run-root.ts';
import { TemplateUses } from './template-uses.ts';

/** An engine, and what has to be given back when no replica of it is left. */
export interface OpenEngine extends AsyncDisposable {
  readonly engine: Engine;
}

/**
 * Finds QEMU, as whom it runs and what bounds it, and whether guests run under KVM here.
 * @param kernelPath of a guest, which is tried @throws QemuMissing, MachineUserUnavailable
 */
export async function openEngine(
  { area, runnerId, settings, log, signal, kernel }: Omit<PoolOrder, 'images'>,
  kernelPath: string,
): Promise<OpenEngine> {
  const qemu = await findQemu();
  const isolation = await openIsolation({ qemuUser: settings.qemuUser, runnerId });
  sayIsolation(isolation, log);
  const { accelerator, reason } = await chooseAccelerator({
    ...{ wanted: settings.accelerator, qemu, kernelPath, user: isolation.user },
    ...{ cacheDir: settings.cacheDir, signal },
  });
  log.info({ accelerator, reason, qemu: qemu.version }, 'accelerator');
  const runRoot = await openRunRoot();
  const merging = await openMerging(runRoot, settings.mergeMemory ?? false, log, kernel);
  const launcher = new Launcher();
  const uses = new TemplateUses(area.path);
  return {
    engine: {
      ...{ area, runnerId, qemu, launcher, accelerator, isolation, uses, runRoot, log },
      mergeMemory: merging.on,
    },
    async [Symbol.asyncDispose]() {
      await launcher[Symbol.asyncDispose]();
      await merging[Symbol.asyncDispose]();
      await uses[Symbol.asyncDispose]();
    },
  };
}
