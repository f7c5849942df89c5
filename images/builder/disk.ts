import { open } from 'node:fs/promises';
import { runContained } from './command.ts';

const UUID = '67796d62-7573-4000-8000-000000000001';

/**
 * Make a sparse raw disk of `bytes` with one ext4 file system (label `root`) that holds the tree, without mounting it.
 * No journal and no checksums: replicas are thrown away, never recovered.
 */
export async function writeDisk(root: string, bytes: number, target: string, signal: AbortSignal): Promise<void> {
  const file = await open(target, 'wx');
  try {
    await file.truncate(bytes);
  } finally {
    await file.close();
  }
  await runContained(
    [
      'mke2fs',
      '-q',
      '-F',
      '-t',
      'ext4',
      '-L',
      'root',
      '-U',
      UUID,
      '-m',
      '0',
      '-O',
      '^has_journal,^metadata_csum,^resize_inode',
      // Inode tables written now, so that no kernel thread of each clone does it later.
      '-E',
      `lazy_itable_init=0,hash_seed=${UUID},root_owner=0:0`,
      '-d',
      root,
      target,
    ],
    { signal, timeoutMs: 10 * 60_000 },
  );
}
