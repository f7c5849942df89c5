import { execa } from 'execa';

/** A gigabyte that is not in the page cache, from a slow disk. */
const READ_DEADLINE_MS = 120_000;

/** Reads what there is of a sparse file, a megabyte at a time, holes left out: Node cannot ask where these are. */
const READER = `
open(my $file, '<', $ARGV[0]) or die "$ARGV[0]: $!\\n";
my $at = 0;
while (defined(my $from = sysseek($file, $at, 3))) {
  my $to = sysseek($file, $from, 4);
  sysseek($file, $from, 0);
  for (my $left = $to - $from; $left > 0;) {
    my $got = sysread($file, my $bytes, $left < 1048576 ? $left : 1048576) or last;
    $left -= $got;
  }
  $at = $to + 0;
}
`;

/**
 * Brings a template's memory file into the page cache, where all clones find it: its pages are charged to whoever reads them first,
 * and to its cgroup for as long as they are there. That is to be the runner, and not the first clone, whose limit they would use up. What
 * is there already is passed over at memory's speed: 0.1 s of processor time for 300 MB.
 */
export async function readMemoryPages(file: string, signal: AbortSignal): Promise<void> {
  await execa('perl', ['-e', READER, file], { timeout: READ_DEADLINE_MS, cancelSignal: signal });
}
