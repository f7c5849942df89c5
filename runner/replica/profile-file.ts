import { readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { mergeSamples, Profile, type Samples } from './profile.ts';
import { templatesFolder } from './template.ts';

const fileOf = (area: string, key: string): string => path.join(templatesFolder(area), key, 'profile.json');

/** A template's profile as it lies there; null where there is none yet, or none that can be read: it is learned anew. */
export async function readProfile(area: string, key: string): Promise<Profile | null> {
  const text = await readFile(fileOf(area, key), 'utf8').catch(() => null);
  try {
    return Profile.parse(JSON.parse(text ?? ''));
  } catch {
    return null;
  }
}

/**
 * Adds samples to the profile as it is now, for another runner may have added its own since. The file is whole at any moment. Two that
 * add at the same moment lose the samples of one, which is no harm: what they measure, the next replica shows again.
 * @param runner names the draft, which a killed runner's next one overwrites
 * @param start where there is no profile yet
 * @throws the file system's own error: ENOENT when the template is gone
 */
export async function addToProfile(
  area: string,
  key: string,
  runner: string,
  start: Profile,
  samples: Samples,
): Promise<Profile> {
  const profile = mergeSamples((await readProfile(area, key)) ?? start, samples);
  const file = fileOf(area, key);
  const draft = `${file}.${runner}`;
  await writeFile(draft, `${JSON.stringify(profile)}\n`);
  await rename(draft, file);
  return profile;
}
