import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { cpuTopology } from '../system/cpu-topology.ts';
import type { HostRoom } from './capacity.ts';
import { planGroups } from './cpu-groups.ts';
import type { ForecastBasis } from './forecast.ts';
import { type HostNow, numaNodes, openFilesLimit } from './host-now.ts';
import type { LedgerEntry } from './ledger.ts';
import { type Estimates, emptyProfile, estimatesOf, type Figure, type Profile } from './profile.ts';
import { readProfile } from './profile-file.ts';
import { templatesFolder } from './template.ts';
import { readRecord, type TemplateRecord } from './template-record.ts';

/** What is known of one image on this host. */
export interface KnownImage {
  image: string;
  digest: string;
  /** Key of the template that was measured; null where none was yet. */
  template: string | null;
  profile: Profile;
}

/** An image without a template, by what its build says. */
export interface BuiltImage {
  name: string;
  digest: string;
  memoryMib: number;
}

/** The newest template's profile of each image; what is assumed of one that has none. */
export async function knownImages(
  area: string,
  images: readonly BuiltImage[],
  accelerator: 'kvm' | 'tcg',
): Promise<KnownImage[]> {
  const records = await templateRecords(area);
  return Promise.all(
    images.map(async ({ name, digest, memoryMib }) => {
      const record = records.find((it) => it.image_digest === digest && it.accelerator === accelerator);
      const profile = record ? await readProfile(area, record.key) : null;
      const none = emptyProfile({ image: name, image_digest: digest, accelerator, memory_mib: memoryMib });
      return { image: name, digest, template: profile ? (record?.key ?? null) : null, profile: profile ?? none };
    }),
  );
}

/** Newest first. */
async function templateRecords(area: string): Promise<TemplateRecord[]> {
  const names = await readdir(templatesFolder(area)).catch((): string[] => []);
  // Hidden ones are being made.
  const whole = names.filter((name) => !name.startsWith('.'));
  const records = await Promise.all(whole.map((name) => readRecord(path.join(templatesFolder(area), name))));
  return records.filter((it) => it !== null).sort((a, b) => b.created_at.localeCompare(a.created_at));
}

/** What to plan with where any of several images may be what acts next: of each figure the largest. */
export function basisOf(images: readonly KnownImage[], imageDiskBytes: number): ForecastBasis {
  const [first] = images;
  if (!first) throw new Error('no image to plan with');
  const all = images.map(({ profile }) => estimatesOf(profile));
  const dearest = (figure: Figure): Estimates[Figure] =>
    all.map((estimates) => estimates[figure]).reduce((a, b) => ((b.value ?? -1) > (a.value ?? -1) ? b : a));
  const figures = Object.keys(estimatesOf(first.profile)) as Figure[];
  return {
    estimates: Object.fromEntries(figures.map((figure) => [figure, dearest(figure)])) as Estimates,
    accelerator: first.profile.accelerator,
    guestMemoryMib: Math.max(...images.map(({ profile }) => profile.memory_mib)),
    imageDiskBytes,
  };
}

/**
 * This host as it may be planned with: what replicas have already counts as theirs.
 * @param groupCpus processors in a group, where a setting says so
 */
export async function roomNow(
  now: HostNow,
  entries: readonly LedgerEntry[],
  groupCpus: number | undefined,
): Promise<HostRoom> {
  return {
    groups: planGroups(await cpuTopology(), groupCpus ?? null).length,
    memoryBytes: now.memoryBytes + entries.reduce((sum, entry) => sum + entry.residentBytes, 0),
    ...{ cpus: now.cpus, diskBytes: now.diskBytes, numaNodes: numaNodes(), openFiles: openFilesLimit() },
  };
}
