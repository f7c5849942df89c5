import { Command } from 'commander';
import { listImages } from '../../images/store.ts';
import type { Config } from '../host/config.ts';
import { HostSpecError, parseHostSpec } from '../host/host-spec.ts';
import { chooseAccelerator } from '../qemu/accelerator.ts';
import { findQemu } from '../qemu/binary.ts';
import { chooseMachineUser } from '../qemu/machine-user.ts';
import { forecast } from '../replica/forecast.ts';
import { basisOf, type KnownImage, knownImages, roomNow } from '../replica/host-forecast.ts';
import { hostNow } from '../replica/host-now.ts';
import { ledgerFolder, readLedger } from '../replica/ledger.ts';
import { openRunRoot } from '../replica/run-root.ts';
import { openArea } from '../storage/area.ts';
import { makeFolder } from '../system/make-folder.ts';
import { capacityReport, reportText } from './capacity-report.ts';
import { configOf } from './client.ts';
import { CliError, EXIT } from './error.ts';
import { Interrupt } from './interrupt.ts';

export const capacityCommand = new Command('capacity')
  .description('Show how many replicas this host, or another, can hold, what bounds them and what one costs')
  .option('--host <spec>', 'another machine: cores=88,memory=768G,disk=4T[,numa=2][,usd_per_day=235][,accel=kvm]')
  .option('--json', 'the report as JSON')
  .addHelpText(
    'after',
    '\nPlans from what replicas on this host were measured to need, and says what is only assumed. GYMBUS_USD_PER_DAY is\nthe price of this host. Makes the data directory and the storage area in it; changes nothing else.',
  )
  .action(async (options: { host?: string; json?: boolean }) => {
    using interrupt = new Interrupt();
    const spec = options.host === undefined ? null : specOf(options.host);
    const config = configOf(process.env);
    await makeFolder(config.dataDir);
    await using area = await openArea({ dataDir: config.dataDir, floorBytes: config.diskFloorBytes }, interrupt.signal);
    const images = await imagesKnown(config, area.path, interrupt.signal);
    const runners = readLedger(ledgerFolder(await openRunRoot()));
    const basis = basisOf(
      images.map(({ known }) => known),
      Math.max(...images.map(({ diskBytes }) => diskBytes)),
    );
    const room = spec
      ? { ...spec, cpus: spec.cores, openFiles: Number.POSITIVE_INFINITY }
      : await roomNow(hostNow(area.path), runners, config.groupCpus);
    const { acting, ready, frozen, perGroup } = config;
    const settings = spec ? {} : { acting, ready, frozen, perGroup };
    const usdPerDay = spec ? spec.usdPerDay : (config.usdPerDay ?? null);
    const plan = forecast(basis, room, { ...settings, diskFloorBytes: config.diskFloorBytes }, usdPerDay);
    const report = capacityReport({
      ...{ spec, room, usdPerDay, basis, plan },
      images: images.map(({ known }) => known),
      runners: spec ? null : runners,
    });
    console.log(options.json ? JSON.stringify(report, null, 2) : reportText(report));
  });

function specOf(text: string) {
  try {
    return parseHostSpec(text);
  } catch (error) {
    if (error instanceof HostSpecError) throw new CliError(error.message, EXIT.usage, { cause: error });
    throw error;
  }
}

/** The configured images that are built here, the newest of each, with what is known of their replicas. */
async function imagesKnown(
  config: Config,
  area: string,
  signal: AbortSignal,
): Promise<{ known: KnownImage; diskBytes: number }[]> {
  const all = await listImages(config.cacheDir);
  const built = config.images.flatMap((reference) => {
    const [name, digest = ''] = reference.split('@');
    return all.find((image) => image.name === name && image.digest.startsWith(digest)) ?? [];
  });
  const [first] = built;
  if (!first) {
    throw new CliError(
      `none of ${config.images.join(', ')} is in ${config.cacheDir}: gymbus image build makes what there is a recipe for`,
    );
  }
  const { user } = await chooseMachineUser(config.qemuUser, { make: false });
  const { accelerator } = await chooseAccelerator({
    ...{ wanted: config.accelerator, qemu: await findQemu(), kernelPath: first.kernelPath, user },
    ...{ cacheDir: config.cacheDir, signal },
  });
  const sizes = built.map(({ name, digest, manifest }) => ({ name, digest, memoryMib: manifest.memory_mib }));
  const known = await knownImages(area, sizes, accelerator);
  return known.map((image, index) => ({ known: image, diskBytes: built[index]?.manifest.disk_bytes ?? 0 }));
}
