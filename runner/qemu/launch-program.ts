import type { Rights } from './rights.ts';

/**
 * Numbers of system calls, on each processor architecture Node runs QEMU on: prctl, setgroups, setresgid, setresuid, prlimit64,
 * sched_setaffinity, signalfd4.
 */
const CALLS: Partial<Record<NodeJS.Architecture, readonly number[]>> = {
  x64: [157, 116, 119, 117, 302, 203, 289],
  arm64: [167, 159, 149, 147, 261, 122, 74],
};

/**
 * What stands between the runner and QEMU, in perl, whose base is part of every Debian and which forks in a millisecond what takes Node
 * eight to thirty, standing still: `once` becomes QEMU, `serve` makes processes that do.
 *
 * Either gives up what QEMU need not have. As the runner's user it joins its cgroups and is bounded: no core files, which would hold a
 * guest's memory; of descriptors QEMU needs some dozens. Should the host run out of memory, it goes before the runner. Huge pages off: a
 * clone pays for each page it touches, 2 MiB at a time with them. Where asked for, its memory is up for merging; a kernel that cannot
 * (before 6.4) leaves it. Then it gives up all rights. Only after that it asks for SIGKILL when its parent dies, for the kernel forgets
 * that with a change of user; and ends at once should that be dead already.
 *
 * `serve` reads orders and tells of them, each a line or a number of bytes (`Launcher` has the other end). It is tied to the runner as
 * QEMU is to it, so that none of them outlives the runner. It alone waits for its processes, and it alone kills them: a number stays
 * theirs for as long as it is used.
 */
const PROGRAM = `
my ($mode, $calls, $parent) = splice(@ARGV, 0, 3);
my ($prctl, $setgroups, $setresgid, $setresuid, $prlimit, $setaffinity, $signalfd) = map { $_ + 0 } split(/,/, $calls);

sub bound {
  my ($resource, $most) = @_;
  my $now = "\\0" x 16;
  syscall($prlimit, 0, $resource, 0, $now) == 0 or die "launcher: cannot read limit $resource: $!\\n";
  my (undef, $hard) = unpack('QQ', $now);
  $most = $hard if $hard < $most;
  my $new = pack('QQ', $most, $most);
  syscall($prlimit, 0, $resource, $new, 0) == 0 or die "launcher: cannot set limit $resource: $!\\n";
}

sub share_fate {
  my ($what, $parent) = @_;
  syscall($prctl, 1, 9, 0, 0, 0) == 0 or die "launcher: cannot tie $what to its runner: $!\\n";
  getppid() == $parent or die "launcher: the runner is gone\\n";
}

sub become {
  my ($parent, $user, $data, $merge, $cpus, $joins, @command) = @_;
  for my $file (splice(@command, 0, $joins)) {
    my $group;
    open($group, '>', $file) && defined(syswrite($group, '0')) or die "launcher: cannot join $file: $!\\n";
  }
  bound(4, 0);
  bound(7, 1024);
  bound(2, $data + 0) if $data;
  if (open(my $score, '>', '/proc/self/oom_score_adj')) { syswrite($score, '500') }
  syscall($prctl, 41, 1, 0, 0, 0) == 0 or die "launcher: cannot turn huge pages off: $!\\n";
  syscall($prctl, 67, 1, 0, 0, 0) if $merge;
  if ($cpus ne '') {
    my $mask = "\\0" x 512;
    vec($mask, $_, 1) = 1 for split(/,/, $cpus);
    syscall($setaffinity, 0, length($mask), $mask) >= 0 or die "launcher: cannot keep to processors $cpus: $!\\n";
  }
  if ($user ne '') {
    my ($uid, $gid, @groups) = map { $_ + 0 } split(/,/, $user);
    my $list = pack('L*', @groups);
    syscall($setgroups, scalar(@groups), $list) == 0 or die "launcher: cannot give up its groups: $!\\n";
    syscall($setresgid, $gid, $gid, $gid) == 0 or die "launcher: cannot become group $gid: $!\\n";
    syscall($setresuid, $uid, $uid, $uid) == 0 or die "launcher: cannot become user $uid: $!\\n";
  }
  syscall($prctl, 38, 1, 0, 0, 0) == 0 or die "launcher: cannot rule out new privileges: $!\\n";
  share_fate('qemu', $parent);
  exec { $command[0] } @command or die "launcher: cannot start $command[0]: $!\\n";
}

sub high {
  my ($file) = @_;
  return fcntl($file, 1030, 64) || die "launcher: no descriptor: $!\\n";
}

sub child {
  my ($parent, $socket, $channels, $files, @rest) = @_;
  my %wanted;
  for my $number (split(/,/, $channels)) {
    my $end;
    socket($end, 1, 1, 0) && connect($end, Socket::pack_sockaddr_un($socket)) or die "launcher: cannot reach the runner: $!\\n";
    open(STDERR, '>&', $end) if $number == 2;
    $wanted{$number} = high($end) if $number != 2;
  }
  while ($files-- > 0) {
    my ($number, $access, $path) = splice(@rest, 0, 3);
    sysopen(my $file, $path, $access eq 'r' ? 0 : 2) or die "launcher: cannot open $path: $!\\n";
    $wanted{$number} = high($file);
  }
  open(STDIN, '<', '/dev/null') && open(STDOUT, '>', '/dev/null') or die "launcher: cannot open /dev/null: $!\\n";
  POSIX::dup2($wanted{$_}, $_) // die "launcher: no descriptor $_: $!\\n" for keys %wanted;
  become($parent, @rest);
}

sub answer { syswrite(STDOUT, join("\\0", @_) . "\\n") }

sub serve {
  require POSIX;
  require Socket;
  share_fate('launcher', $parent);
  $SIG{$_} = 'IGNORE' for qw(INT TERM HUP);
  my $ends = POSIX::SigSet->new(POSIX::SIGCHLD());
  POSIX::sigprocmask(POSIX::SIG_BLOCK(), $ends);
  my $mask = pack('Q', 1 << (POSIX::SIGCHLD() - 1));
  my $number = syscall($signalfd, -1, $mask, 8, 02004000);
  $number >= 0 && open(my $ended, '<&=', $number) or die "launcher: cannot be told of ends: $!\\n";
  my (%pids, %ids, $read);
  for (;;) {
    my $ready = '';
    vec($ready, $_, 1) = 1 for 0, $number;
    select($ready, undef, undef, undef);
    if (vec($ready, $number, 1)) {
      sysread($ended, my $signals, 4096);
      while ((my $pid = waitpid(-1, 1)) > 0) {
        my ($code, $signal) = ($? >> 8, $? & 127);
        my $id = delete $ids{$pid};
        delete $pids{$id};
        answer('exit', $id, $code, $signal);
      }
    }
    if (vec($ready, 0, 1)) {
      sysread(STDIN, $read, 65536, length($read // '')) or exit;
      while ($read =~ /^(\\d+)\\n/ && length($read) >= length($1) + 1 + $1) {
        my ($order, $id, @fields) = split(/\\0/, substr($read, length($1) + 1, $1), -1);
        $read = substr($read, length($1) + 1 + $1);
        if ($order eq 'kill') {
          kill('KILL', $pids{$id}) if $pids{$id};
          next;
        }
        my $self = $$;
        my $pid = fork();
        if (!defined($pid)) {
          answer('failed', $id, "cannot fork: $!");
        } elsif ($pid == 0) {
          $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP);
          POSIX::sigprocmask(POSIX::SIG_UNBLOCK(), $ends);
          child($self, @fields);
        } else {
          ($pids{$id}, $ids{$pid}) = ($pid, $id);
          answer('started', $id, $pid);
        }
      }
    }
  }
}

$mode eq 'serve' ? serve() : become($parent, @ARGV);
`;

/** The command line that runs a program with these rights and so that it cannot outlive this process. */
export function launchOnce(command: readonly string[], rights: Rights): [string, ...string[]] {
  return ['perl', '-e', PROGRAM, 'once', calls(), String(process.pid), ...rightsFields(rights), ...command];
}

/** The command line of the process that launches others. */
export function launchServer(): [string, ...string[]] {
  return ['perl', '-e', PROGRAM, 'serve', calls(), String(process.pid)];
}

/** As the program reads them, before the command itself. */
export function rightsFields({ user, joins, dataBytes, mergeMemory = false, cpus }: Rights): string[] {
  const who = user === null ? '' : [user.uid, user.gid, ...user.groups].join(',');
  const limits = [String(dataBytes ?? 0), mergeMemory ? '1' : '0', (cpus ?? []).join(',')];
  return [who, ...limits, String(joins.length), ...joins];
}

function calls(): string {
  const numbers = CALLS[process.arch];
  if (numbers === undefined) throw new Error(`qemu cannot be tied to its runner on ${process.arch}`);
  return numbers.join(',');
}
