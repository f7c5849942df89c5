#!/usr/bin/python3
"""The resident helper: the host's hands inside the guest.

Speaks JSON lines over the virtio-serial port `gymbus.0`. It is started once, before the template is saved, and every
clone wakes up with it running: so all imports are done here, at the top, and what is slow to make (the connection to
the X server) is made before it is needed.

Threads: the main thread only reads the port and answers what cannot block. Everything else gets a thread of its own,
so that a long command never delays a ping. A thread that acts as a user changes its own file system credentials and
ends with them; those calls are per thread on Linux.
"""

import base64
import binascii
import collections
import contextlib
import ctypes
import errno
import fcntl
import gc
import itertools
import json
import os
import pwd
import queue
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
import uuid

from Xlib import X, Xatom, display as xdisplay, error as xerror
from Xlib.ext import xtest
from Xlib.protocol import event as xevent

PORT = os.environ.get('GYMBUS_PORT', '/dev/virtio-ports/gymbus.0')
MAX_LINE = 1 << 20
MAX_CHUNK = 512 << 10
DEFAULT_OUTPUT = 256 << 10
# More requests in flight than this means that the host does not wait for answers.
MAX_IN_FLIGHT = 128
# How long X may take for one round trip before it counts as hung.
X_ALIVE_S = 2.0
# How long an application may take to answer a ping, and the X server a whole look at its windows, before it is said so.
PING_WAIT_S = 1.0
X_HEALTH_S = 5.0
# The kernel learns of its new generation by an ACPI interrupt that may come just after our request.
RESEED_WAIT_S = 0.5
# A command may leave a child behind that holds its output open: how long to wait for more after it ended.
OUTPUT_GRACE_S = 0.2

RESEEDED = b'crng reseeded due to virtual machine fork'
RNDADDENTROPY = 0x40085203
RNDRESEEDCRNG = 0x5207
SYS_SETGROUPS = 116
SYS_SETRESUID = 117
SYS_SETRESGID = 119
SYS_PIDFD_GETFD = 438
MS_BIND = 4096
BOOT_ID = '/proc/sys/kernel/random/boot_id'
BOOT_ID_OVER = '/run/gymbus-boot-id'

# Where programs that this attempt starts find the way to the hosts its job may reach: sourced by shells and by Chromium's launcher, too.
ENVIRONMENT = '/run/gymbus/environment'
PROXY = 'http://127.0.0.1:3128'
NETWORK_WAIT_S = 50

libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """A request that cannot be served; `code` is an errno name or EPROTO."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def field(message, name, kinds, default=...):
    value = message.get(name)
    if value is None:
        if default is ...:
            raise Refused('EINVAL', f'{name} is missing')
        return default
    if isinstance(value, bool) and bool not in (kinds if isinstance(kinds, tuple) else (kinds,)):
        raise Refused('EINVAL', f'{name} has the wrong type: bool')
    if not isinstance(value, kinds):
        raise Refused('EINVAL', f'{name} has the wrong type: {type(value).__name__}')
    return value


def unbase64(message, name, default=...):
    text = field(message, name, str, default)
    if text is default:
        return default
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as cause:
        raise Refused('EINVAL', f'{name} is not base64: {cause}') from cause


def base64_text(data):
    return base64.b64encode(data).decode('ascii')


# --- the port -----------------------------------------------------------------------------------------------------


class Port:
    """The virtio-serial port. Non-blocking: when the host's end is closed, reads give nothing and writes would wait
    for ever, so an answer whose asker has gone is dropped."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.lock = threading.Lock()
        # Counts the host's connections: an answer belongs to the connection that asked.
        self.generation = 0
        # The driver can signal a change of the host's end; the handler only wakes the reader below.
        self.wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGIO, lambda *_: None)
        fcntl.fcntl(self.fd, fcntl.F_SETOWN, os.getpid())

    def signals(self, wanted):
        # Only while we wait for the host: connected, the driver would signal each arrival of data too.
        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)
        fcntl.fcntl(self.fd, fcntl.F_SETFL, flags | os.O_ASYNC if wanted else flags & ~os.O_ASYNC)

    def read(self):
        """The next bytes; b'' when the host's end is closed (after waiting a moment for it to open)."""
        poller = select.poll()
        poller.register(self.fd, select.POLLIN)
        while True:
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                poller.poll()
                continue
            if data:
                return data
            self.signals(True)
            if self.closed():
                select.select([self.wake], [], [], 0.5)
            self.signals(False)
            try:
                os.read(self.wake, 4096)
            except BlockingIOError:
                pass
            return b''

    def closed(self):
        poller = select.poll()
        poller.register(self.fd, select.POLLIN)
        return any(happened & select.POLLHUP for _, happened in poller.poll(0))

    def write(self, data, generation):
        view = memoryview(data)
        poller = select.poll()
        poller.register(self.fd, select.POLLOUT)
        with self.lock:
            while view:
                if generation != self.generation:
                    return
                try:
                    view = view[os.write(self.fd, view[:32768]):]
                except BlockingIOError:
                    for _, happened in poller.poll(1000):
                        if happened & select.POLLHUP:
                            time.sleep(0.02)
                except OSError as cause:
                    print(f'reply lost: {cause}', file=sys.stderr)
                    return


# --- users and commands -------------------------------------------------------------------------------------------


def read_environment(path):
    """KEY=VALUE lines of a file; none where there is no such file."""
    found = {}
    try:
        with open(path, encoding='utf-8') as lines:
            for line in lines:
                name, equals, value = line.strip().partition('=')
                if equals and not name.startswith('#'):
                    found[name] = value.strip('"')
    except FileNotFoundError:
        pass
    return found


class User:
    def __init__(self, name):
        try:
            entry = pwd.getpwnam(name)
        except KeyError as cause:
            raise Refused('EINVAL', f'user {name!r} does not exist in the guest') from cause
        self.name, self.uid, self.gid, self.home = name, entry.pw_uid, entry.pw_gid, entry.pw_dir
        self.groups = os.getgrouplist(name, entry.pw_gid)
        self.env = {
            # The same for the desktop session (by PAM) and for commands; then what is so in this attempt alone.
            **read_environment('/etc/environment'),
            **read_environment(ENVIRONMENT),
            'HOME': entry.pw_dir,
            'USER': name,
            'LOGNAME': name,
            'SHELL': entry.pw_shell or '/bin/sh',
            'LANG': 'C.UTF-8',
            'DISPLAY': ':0',
        }
        self.env.setdefault('PATH', '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin')
        if self.uid:
            self.env['XAUTHORITY'] = f'{self.home}/.Xauthority'
            self.env['XDG_RUNTIME_DIR'] = f'/run/user/{self.uid}'
            self.env['DBUS_SESSION_BUS_ADDRESS'] = f'unix:path=/run/user/{self.uid}/bus'

    def become(self):
        """Give the calling thread this user's rights on files, for the rest of its life."""
        set_groups(self.groups)
        libc.setfsgid(self.gid)
        libc.setfsuid(self.uid)

    @contextlib.contextmanager
    def being(self):
        """Make the calling thread this user, and root again afterwards. What it starts meanwhile is born as that user, and
        so need not be a copy of us (vfork): a third less work. It keeps nothing of root's: exec forgets the saved id."""
        if self.uid == 0:
            yield
            return
        set_groups(self.groups)
        try:
            set_ids(SYS_SETRESGID, self.gid, 0)
            set_ids(SYS_SETRESUID, self.uid, 0)
            yield
        finally:
            set_ids(SYS_SETRESUID, 0, 0)
            set_ids(SYS_SETRESGID, 0, 0)
            set_groups(OWN_GROUPS)


OWN_GROUPS = os.getgroups()


# By the kernel's calls: those of the C library are for all threads.
def set_groups(groups):
    if libc.syscall(SYS_SETGROUPS, len(groups), (ctypes.c_uint32 * len(groups))(*groups)) != 0:
        raise OSError(ctypes.get_errno(), 'setgroups')


def set_ids(call, own, saved):
    if libc.syscall(call, own, own, saved) != 0:
        raise OSError(ctypes.get_errno(), 'setresuid' if call == SYS_SETRESUID else 'setresgid')


users = {}


def user_of(message, default):
    name = field(message, 'user', str, default)
    if name not in users:
        users[name] = User(name)
    return users[name]


def start(message, **streams):
    argv = field(message, 'argv', list)
    if not argv or not all(isinstance(part, str) and '\0' not in part for part in argv):
        raise Refused('EINVAL', 'argv must be a list of one or more strings')
    extra = field(message, 'env', dict, {})
    if not all(isinstance(value, str) for value in extra.values()):
        raise Refused('EINVAL', 'env must map names to strings')
    user = user_of(message, 'user')
    cwd = field(message, 'cwd', str, user.home)
    with user.being():
        process = subprocess.Popen(
            argv, cwd=cwd, env={**user.env, **extra}, start_new_session=True, close_fds=True, **streams)
    # What is started is not spared when memory runs out, as we are.
    try:
        with open(f'/proc/{process.pid}/oom_score_adj', 'w', encoding='ascii') as score:
            score.write('0')
    except (FileNotFoundError, ProcessLookupError):
        pass  # over already
    return process


def drain(files):
    """Swallow what a left-behind child still writes, so that it is not killed by a closed pipe."""
    open_files = list(files)
    while open_files:
        for file in select.select(open_files, [], [])[0]:
            try:
                if os.read(file.fileno(), 65536):
                    continue
            except BlockingIOError:
                continue
            open_files.remove(file)
            file.close()


def op_exec(message):
    timeout = field(message, 'timeout_s', (int, float))
    limit = field(message, 'max_output', int, DEFAULT_OUTPUT)
    stdin = unbase64(message, 'stdin_b64', None)
    deadline = time.monotonic() + timeout
    process = start(message, stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output = {process.stdout: bytearray(), process.stderr: bytearray()}
    pending = memoryview(stdin or b'')
    truncated = timed_out = ended = False
    pidfd = os.pidfd_open(process.pid)
    poller = select.poll()
    by_fd = {}
    for file, mask in ((process.stdout, select.POLLIN), (process.stderr, select.POLLIN), (process.stdin, select.POLLOUT)):
        if file is not None:
            os.set_blocking(file.fileno(), False)
            by_fd[file.fileno()] = file
            poller.register(file.fileno(), mask)
    poller.register(pidfd, select.POLLIN)

    def close(file):
        poller.unregister(file.fileno())
        del by_fd[file.fileno()]
        file.close()

    while not ended or any(file in output for file in by_fd.values()):
        left = deadline - time.monotonic()
        if left <= 0:
            if ended:
                break
            timed_out = True
            os.killpg(process.pid, signal.SIGKILL)
            deadline = float('inf')
            left = 60.0
        happened = poller.poll(min(left, 60.0) * 1000)
        for fd, _ in happened:
            if fd == pidfd:
                poller.unregister(pidfd)
                process.wait()
                ended = True
                deadline = time.monotonic() + OUTPUT_GRACE_S
                continue
            file = by_fd[fd]
            if file is process.stdin:
                try:
                    pending = pending[os.write(fd, pending[:65536]):]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    pending = memoryview(b'')
                if not pending:
                    close(file)
                continue
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                continue
            if not data:
                close(file)
                continue
            room = limit - len(output[file])
            output[file] += data[:room]
            truncated = truncated or len(data) > room
    os.close(pidfd)
    if process.stdin is not None and not process.stdin.closed:
        close(process.stdin)
    if by_fd:
        threading.Thread(target=drain, args=(list(by_fd.values()),), daemon=True).start()
    return {
        'returncode': process.returncode,
        'stdout_b64': base64_text(output[process.stdout]),
        'stderr_b64': base64_text(output[process.stderr]),
        'timed_out': timed_out,
        'truncated': truncated,
    }


def op_spawn(message):
    process = start(message, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    threading.Thread(target=process.wait, daemon=True).start()
    return {'pid': process.pid}


# --- files --------------------------------------------------------------------------------------------------------


def path_of(message):
    path = field(message, 'path', str)
    if not path.startswith('/') or '\0' in path:
        raise Refused('EINVAL', f'path must be absolute: {path!r}')
    return path


def open_regular(path, flags, mode=0o644):
    # O_NONBLOCK: a FIFO must not hold us until somebody opens its other end.
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind):
        return fd
    os.close(fd)
    if stat.S_ISDIR(kind):
        raise Refused('EISDIR', f'{path} is a directory')
    raise Refused('EINVAL', f'{path} is not a regular file')


def op_read_file(message):
    path, offset, length = path_of(message), field(message, 'offset', int), field(message, 'length', int)
    if offset < 0 or not 0 <= length <= MAX_CHUNK:
        raise Refused('EINVAL', f'offset must be >= 0 and length between 0 and {MAX_CHUNK}')
    user_of(message, 'root').become()
    fd = open_regular(path, os.O_RDONLY)
    try:
        parts, got = [], 0
        while got < length:
            part = os.pread(fd, length - got, offset + got)
            if not part:
                break
            parts.append(part)
            got += len(part)
        # Files of /proc have size 0 and content: only a short read tells their end.
        size = max(os.fstat(fd).st_size, offset + got if got else 0)
        return {'data_b64': base64_text(b''.join(parts)), 'size': size, 'eof': got < length or offset + got >= size}
    finally:
        os.close(fd)


def op_write_file(message):
    path, offset = path_of(message), field(message, 'offset', int)
    data, mode = unbase64(message, 'data_b64'), field(message, 'mode', int, None)
    if offset < 0 or len(data) > MAX_CHUNK:
        raise Refused('EINVAL', f'offset must be >= 0 and data at most {MAX_CHUNK} bytes')
    user_of(message, 'user').become()
    if offset == 0:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.isdir(path):
        raise Refused('EISDIR', f'{path} is a directory')
    fd = open_regular(path, os.O_WRONLY | (os.O_CREAT | os.O_TRUNC if offset == 0 else 0))
    try:
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, offset)
            view, offset = view[written:], offset + written
        if mode is not None:
            os.fchmod(fd, mode & 0o7777)
        return {'size': os.fstat(fd).st_size}
    finally:
        os.close(fd)


# --- clock and identity -------------------------------------------------------------------------------------------

kmsg = os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
reseeded = False


def look_for_reseed(wait_s):
    """Read the kernel log up to its end; True once the kernel said that it knows of its new generation."""
    global reseeded
    deadline = time.monotonic() + wait_s
    poller = select.poll()
    poller.register(kmsg, select.POLLIN)
    while not reseeded:
        try:
            reseeded = RESEEDED in os.read(kmsg, 8192)
        except BlockingIOError:
            left = deadline - time.monotonic()
            if left <= 0 or not poller.poll(left * 1000):
                break
        except BrokenPipeError:
            continue  # records were overwritten: read on from the oldest
    return reseeded


def set_clock(time_us):
    time.clock_settime_ns(time.CLOCK_REALTIME, time_us * 1000)


def now_us():
    return time.time_ns() // 1000


def op_clock(message):
    to = field(message, 'set_us', int, None)
    if to is not None:
        set_clock(to)
    return {'time_us': now_us()}


def mix_entropy(seed):
    with open('/dev/urandom', 'wb', buffering=0) as device:
        fcntl.ioctl(device, RNDADDENTROPY, struct.pack('ii', len(seed) * 8, len(seed)) + seed)
        fcntl.ioctl(device, RNDRESEEDCRNG)


def renew_boot_id():
    """The kernel makes its boot id once, so all clones would share it: a file with a fresh one lies over it. Laid when
    the helper starts: a mount wakes systemd, which tells everybody on the bus, in each clone."""
    text = f'{uuid.UUID(bytes=os.urandom(16), version=4)}\n'.encode('ascii')
    laid = os.path.exists(BOOT_ID_OVER)
    fd = os.open(BOOT_ID_OVER, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o444)
    try:
        os.pwrite(fd, text, 0)
    finally:
        os.close(fd)
    if not laid and libc.mount(BOOT_ID_OVER.encode(), BOOT_ID.encode(), None, MS_BIND, None) != 0:
        raise OSError(ctypes.get_errno(), f'cannot mount over {BOOT_ID}')


def read_line(path):
    with open(path, encoding='utf-8') as file:
        return file.readline().strip()


def write_line(path, line):
    """Not where it says so already: others watch these files, and each would look what is new."""
    if os.path.exists(path) and read_line(path) == line:
        return
    with open(path, 'w', encoding='utf-8') as file:
        file.write(f'{line}\n')


def op_restore(message):
    time_us, hostname = field(message, 'time_us', int), field(message, 'hostname', str)
    machine_id, seed = field(message, 'machine_id', str), unbase64(message, 'seed_b64')
    if len(machine_id) != 32 or set(machine_id) - set('0123456789abcdef'):
        raise Refused('EINVAL', f'machine_id must be 32 lower-case hex digits: {machine_id!r}')
    if not 1 <= len(hostname) <= 64 or not all(c.isascii() and (c.isalnum() or c in '-.') for c in hostname):
        raise Refused('EINVAL', f'hostname must be 1-64 letters, digits, dots and dashes: {hostname!r}')
    if len(seed) != 32:
        raise Refused('EINVAL', f'seed_b64 must hold 32 bytes, got {len(seed)}')
    set_clock(time_us)
    mix_entropy(seed)
    write_line('/proc/sys/kernel/hostname', hostname)
    write_line('/etc/hostname', hostname)
    write_line('/etc/machine-id', machine_id)
    renew_boot_id()
    knows = look_for_reseed(RESEED_WAIT_S)
    return {
        'time_us': now_us(),
        'hostname': read_line('/etc/hostname'),
        'machine_id': read_line('/etc/machine-id'),
        'boot_id': read_line(BOOT_ID),
        'crng_reseeded': knows,
    }


def op_network(_message):
    """Opens the way out: a socket that systemd listens on, and what tells programs of it."""
    try:
        done = subprocess.run(['systemctl', 'start', 'gymbus-network.socket'], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=NETWORK_WAIT_S, check=False)
    except subprocess.TimeoutExpired as cause:
        raise Refused('ETIMEDOUT', str(cause)) from cause
    if done.returncode != 0:
        raise Refused('EIO', f'the network cannot be opened: {done.stderr.decode("utf-8", "replace").strip()}')
    os.makedirs(os.path.dirname(ENVIRONMENT), exist_ok=True)
    with open(ENVIRONMENT, 'w', encoding='ascii') as file:
        for name in ('http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY'):
            file.write(f'{name}={PROXY}\n')
        file.write('no_proxy=localhost,127.0.0.1\n')
    users.clear()
    return {}


def op_arm(_message):
    global reseeded
    os.lseek(kmsg, 0, os.SEEK_END)
    reseeded = False
    for worker in (looking, typing, watching):
        worker.call(lambda session: session.display.sync(), 5)
    users.clear()
    user_of({}, 'user')
    user_of({}, 'root')
    gc.collect()
    inputs.unread()
    gc.freeze()
    # A clone writes back what the template had not: once here instead of once in each.
    os.sync()
    return {}


def op_memory(_message):
    with open('/proc/meminfo', encoding='ascii') as lines:
        for line in lines:
            if line.startswith('MemAvailable:'):
                return {'available_bytes': int(line.split()[1]) * 1024}
    raise Refused('ENOENT', 'the kernel reports no MemAvailable')


# --- input --------------------------------------------------------------------------------------------------------


def find_x_server():
    """The process of the X server: its number and a descriptor that becomes readable when it ends; None where there is none."""
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/comm', encoding='utf-8') as name:
                if name.read() == 'Xorg\n':
                    return pid, os.pidfd_open(int(pid))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return None


class Inputs:
    """The input devices as the X server holds them: copies of its own descriptors, which the kernel tells us to be
    readable for as long as the server has not read all that came. Its buffers are small, and drop what overflows."""

    def __init__(self):
        self.server = None
        self.devices = []
        self.poller = select.poll()

    def unread(self):
        """How many devices have something that the server has not read; none where there is no server."""
        if self.server is None or select.select([self.server], [], [], 0)[0]:
            self.find()
        return sum(1 for _, events in self.poller.poll(0) if events & select.POLLIN)

    def find(self):
        for descriptor in [*self.devices, *([] if self.server is None else [self.server])]:
            os.close(descriptor)
        self.server, self.devices, self.poller = None, [], select.poll()
        found = find_x_server()
        if found is None:
            return
        pid, self.server = found
        try:
            links = {int(number): os.readlink(f'/proc/{pid}/fd/{number}') for number in os.listdir(f'/proc/{pid}/fd')}
        except (FileNotFoundError, ProcessLookupError):
            return  # it ended meanwhile, which its descriptor tells the next who asks
        for number, link in links.items():
            if link.startswith('/dev/input/event'):
                self.take(number)

    def take(self, number):
        descriptor = libc.syscall(SYS_PIDFD_GETFD, self.server, number, 0)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), 'cannot share a descriptor of the X server')
        self.devices.append(descriptor)
        self.poller.register(descriptor, select.POLLIN)


inputs = Inputs()


def op_input(_message):
    return {'unread': inputs.unread()}


# --- the desktop --------------------------------------------------------------------------------------------------


class Session:
    """One connection to the X server, used by one thread."""

    def __init__(self):
        self.display = xdisplay.Display(':0')
        self.root = self.display.screen().root
        self.atoms = {}
        self.ours = set()

    def atom(self, name):
        if name not in self.atoms:
            self.atoms[name] = self.display.intern_atom(name)
        return self.atoms[name]

    def property(self, window, name, kind=X.AnyPropertyType):
        found = window.get_full_property(self.atom(name), kind)
        return None if found is None else found.value


class XWorker:
    """A thread with its own X connection. A hung X server holds this thread, never the caller."""

    def __init__(self):
        self.jobs = queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True).start()

    def connect(self):
        # Python-xlib reads authority files; the server here admits every local user without one.
        while True:
            try:
                return Session()
            except (xerror.DisplayError, xerror.ConnectionClosedError, OSError):
                if not self.jobs.empty():
                    return None
                time.sleep(0.25)

    def run(self):
        session = self.connect()
        while True:
            work, reply, deadline = self.jobs.get()
            if time.monotonic() > deadline:
                continue
            for attempt in (0, 1):
                if session is None:
                    session = self.connect()
                if session is None:
                    reply.put((None, Refused('ENOTCONN', 'the X server does not answer')))
                    break
                try:
                    reply.put((work(session), None))
                    break
                except (xerror.ConnectionClosedError, BrokenPipeError, ConnectionError) as cause:
                    session = None
                    if attempt:
                        reply.put((None, Refused('ENOTCONN', f'the X server went away: {cause}')))
                except Exception as cause:  # handed to the caller, who reports it
                    reply.put((None, cause))
                    break

    def call(self, work, timeout_s):
        reply = queue.SimpleQueue()
        self.jobs.put((work, reply, time.monotonic() + timeout_s))
        try:
            value, cause = reply.get(timeout=timeout_s)
        except queue.Empty:
            raise Refused('ETIMEDOUT', f'the X server did not answer within {timeout_s} s') from None
        if cause is not None:
            raise cause
        return value


looking = XWorker()
typing = XWorker()
watching = XWorker()


def op_pointer(_message):
    def work(session):
        found = session.root.query_pointer()
        return {'x': found.root_x, 'y': found.root_y}

    return looking.call(work, X_ALIVE_S)


def decoded(value):
    if value is None:
        return ''
    return value.decode('utf-8', 'replace') if isinstance(value, bytes) else str(value)


def list_windows(session):
    active = session.property(session.root, '_NET_ACTIVE_WINDOW')
    kinds = {session.atom(f'_NET_WM_WINDOW_TYPE_{kind.upper()}'): kind
             for kind in ('normal', 'dialog', 'desktop', 'dock', 'utility', 'splash', 'menu', 'toolbar')}
    windows = []
    for window_id in session.property(session.root, '_NET_CLIENT_LIST') or []:
        window = session.display.create_resource_object('window', window_id)
        try:
            title = session.property(window, '_NET_WM_NAME')
            if title is None:
                title = session.property(window, 'WM_NAME')
            names = window.get_wm_class()
            size = window.get_geometry()
            place = session.root.translate_coords(window, 0, 0)
            kind = session.property(window, '_NET_WM_WINDOW_TYPE')
        except (xerror.BadWindow, xerror.BadDrawable):
            continue  # closed while we looked
        windows.append({
            'id': window_id,
            'title': decoded(title),
            'class': names[1] if names else '',
            'type': kinds.get(kind[0], 'normal') if kind is not None and len(kind) else 'normal',
            'x': place.x, 'y': place.y, 'width': size.width, 'height': size.height,
            'active': bool(active is not None and len(active) and active[0] == window_id),
        })
    return windows


def op_desktop(_message):
    try:
        return {'x_alive': True, 'windows': looking.call(list_windows, X_ALIVE_S)}
    except Refused:
        return {'x_alive': False, 'windows': []}


CONTROLS = {'\n': 0xff0d, '\r': 0xff0d, '\t': 0xff09, '\b': 0xff08}
SHIFT, LOCK = 0xffe1, 0xffe5


def keysym_of(character):
    if character in CONTROLS:
        return CONTROLS[character]
    point = ord(character)
    if 0x20 <= point <= 0x7e or 0xa0 <= point <= 0xff:
        return point
    if point < 0x20 or 0x7f <= point < 0xa0 or 0xd800 <= point <= 0xdfff:
        raise Refused('EINVAL', f'text holds U+{point:04X}, which no key types')
    return 0x01000000 | point


class Keyboard:
    """Which key types which character now, and keys without a meaning to give one.

    A spare key keeps what it was given until all are in use, and is given something else only after the focused
    application has answered a ping: an application looks a key up when it handles the event, not when we send it."""

    def __init__(self, session):
        self.session = session
        self.display = session.display
        first = self.display.display.info.min_keycode
        rows = self.display.get_keyboard_mapping(first, self.display.display.info.max_keycode - first + 1)
        # Keys that have been ours stay ours, whatever they mean by now.
        session.ours.update(code for code, row in enumerate(rows, first) if not any(row))
        self.bound = {rows[code - first][0]: code for code in session.ours if rows[code - first][0]}
        self.spare = self.best_first(session.ours - set(self.bound.values()))
        self.keys = {}
        for code, row in enumerate(rows, first):
            for level, keysym in enumerate(row[:2] if code not in session.ours else ()):
                if keysym:
                    self.keys.setdefault(keysym, (code, level))
        self.shift = self.keys[SHIFT][0]

    @staticmethod
    def best_first(codes):
        """Key codes by the length of the run they are part of: each request for new meanings covers one run, and each
        makes every program on the screen learn the keyboard anew."""
        runs = []
        for code in sorted(codes):
            if runs and code == runs[-1][-1] + 1:
                runs[-1].append(code)
            else:
                runs.append([code])
        return [code for run in sorted(runs, key=len, reverse=True) for code in run]

    def bind(self, keysyms):
        """Give spare keys these meanings, in as few requests as the gaps between spare keys allow."""
        codes = self.spare[:len(keysyms)]
        self.spare = self.spare[len(keysyms):]
        run = []
        for code, keysym in zip(codes, keysyms):
            self.bound[keysym] = code
            if run and code != run[0] + len(run[1:]):
                self.send(run)
                run = []
            run = [*run, (keysym, keysym)] if run else [code, (keysym, keysym)]
        if run:
            self.send(run)
        self.display.sync()

    def send(self, run):
        # Both levels: a lone capital letter would be split into small and capital.
        self.display.change_keyboard_mapping(run[0], run[1:])

    def reclaim(self):
        self.bound = {}
        self.spare = self.best_first(self.session.ours)

    def press(self, code, shifted):
        fake = xtest.fake_input
        if shifted:
            fake(self.display, X.KeyPress, self.shift)
        fake(self.display, X.KeyPress, code)
        fake(self.display, X.KeyRelease, code)
        if shifted:
            fake(self.display, X.KeyRelease, self.shift)

    def place(self, keysym):
        if keysym in self.keys:
            return self.keys[keysym]
        code = self.bound.get(keysym)
        return None if code is None else (code, 0)


# Answers go to the root window, and so to every connection that waits for one: no two questions have the same number.
stamps = itertools.count(1)


def ping(session, window_ids, wait_s):
    """Ask the applications of these windows whether they have handled all they were sent, as a window manager does: they
    answer in order. The answers that are missing after so long: the windows that did not give one. Windows whose
    applications take no part, or that were closed meanwhile, are in neither."""
    protocols, request = session.atom('WM_PROTOCOLS'), session.atom('_NET_WM_PING')
    session.root.change_attributes(event_mask=X.SubstructureNotifyMask)
    try:
        asked = set()
        for window_id in window_ids:
            window = session.display.create_resource_object('window', window_id)
            try:
                if request in (session.property(window, 'WM_PROTOCOLS', Xatom.ATOM) or []):
                    asked.add(window_id)
            except (xerror.BadWindow, xerror.BadDrawable):
                continue
        missing = dict.fromkeys(asked)
        for window_id in missing:
            missing[window_id] = next(stamps)
            # To one closed meanwhile it is an error that python-xlib prints, and nobody answers: the caller finds no such window.
            session.display.create_resource_object('window', window_id).send_event(xevent.ClientMessage(
                window=window_id, client_type=protocols, data=(32, [request, missing[window_id], window_id, 0, 0])))
        session.display.sync()
        deadline = time.monotonic() + wait_s
        while missing:
            while session.display.pending_events():
                got = session.display.next_event()
                if got.type & 0x7f != X.ClientMessage:
                    continue
                kind, stamp, window_id = got.data[1][:3].tolist()
                if kind == request and missing.get(window_id) == stamp:
                    del missing[window_id]
            left = deadline - time.monotonic()
            if not missing or left <= 0 or not select.select([session.display.fileno()], [], [], left)[0]:
                break
        return asked - set(missing), set(missing)
    finally:
        session.root.change_attributes(event_mask=X.NoEventMask)
        session.display.sync()


def ping_focused(session, wait_s):
    """Wait until the focused application has handled what it was sent. False when it takes no part or not in time."""
    active = session.property(session.root, '_NET_ACTIVE_WINDOW')
    if active is None or not len(active) or not active[0]:
        return False
    answered, _ = ping(session, [active[0]], wait_s)
    return bool(answered)


def type_text(session, text, interval_s):
    keyboard = Keyboard(session)
    keysyms = [keysym_of(character) for character in text]
    if not session.ours and any(keyboard.place(keysym) is None for keysym in keysyms):
        raise Refused('ENOSPC', 'the keyboard has no key to spare for characters beyond its layout')
    locked = session.root.query_pointer().mask & X.LockMask
    if locked:
        keyboard.press(keyboard.keys[LOCK][0], False)
    at = 0
    while at < len(keysyms):
        # As much of the text as the spare keys can express at once.
        wanted, upto = {}, at
        while upto < len(keysyms):
            keysym = keysyms[upto]
            if keyboard.place(keysym) is None and keysym not in wanted:
                if len(wanted) == len(keyboard.spare):
                    break
                wanted[keysym] = True
            upto += 1
        if upto == at:
            keyboard.reclaim()
            continue
        if wanted:
            keyboard.bind(list(wanted))
        for keysym in keysyms[at:upto]:
            code, level = keyboard.place(keysym)
            keyboard.press(code, level == 1)
            if interval_s:
                session.display.flush()
                time.sleep(interval_s)
        session.display.sync()
        if not ping_focused(session, 2):
            time.sleep(0.1)
        at = upto
        if at < len(keysyms):
            keyboard.reclaim()
    if locked:
        keyboard.press(keyboard.keys[LOCK][0], False)
        session.display.sync()
    return {}


def processor_ticks(pid):
    """What a process has used of the processor, in clock ticks; None when there is none."""
    try:
        with open(f'/proc/{pid}/stat', encoding='utf-8', errors='replace') as file:
            fields = file.read().rpartition(')')[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[11]) + int(fields[12])


def check_windows(session):
    """Every window whose application answers pings, and whether it did; what its process has used tells a busy one from
    one that hangs."""
    windows = list(session.property(session.root, '_NET_CLIENT_LIST') or [])
    answered, silent = ping(session, windows, PING_WAIT_S)
    found = [{'id': window_id, 'answered': True} for window_id in answered]
    for window_id in silent:
        window = session.display.create_resource_object('window', window_id)
        try:
            pid = session.property(window, '_NET_WM_PID')
            names = window.get_wm_class()
            title = session.property(window, '_NET_WM_NAME')
        except (xerror.BadWindow, xerror.BadDrawable):
            continue
        pid = int(pid[0]) if pid is not None and len(pid) else None
        found.append({
            'id': window_id, 'answered': False, 'class': names[1] if names else '', 'title': decoded(title),
            'ticks': None if pid is None else processor_ticks(pid),
        })
    return found


def op_health(_message):
    try:
        return {'x_answers': True, 'windows': watching.call(check_windows, X_HEALTH_S)}
    except Refused:
        return {'x_answers': False, 'windows': []}


def op_type_text(message):
    text = field(message, 'text', str)
    interval_s = field(message, 'interval_ms', (int, float), 0) / 1000
    for character in text:
        keysym_of(character)
    return typing.call(lambda session: type_text(session, text, interval_s), 30 + len(text) * (0.05 + interval_s))


# --- requests -----------------------------------------------------------------------------------------------------

# What never waits is answered by the reader itself: a ping costs no thread.
AT_ONCE = {'ping': lambda message: {}, 'clock': op_clock, 'memory': op_memory, 'input': op_input}
OPS = {
    'restore': op_restore, 'arm': op_arm, 'exec': op_exec, 'spawn': op_spawn, 'read_file': op_read_file,
    'write_file': op_write_file, 'type_text': op_type_text, 'pointer': op_pointer, 'desktop': op_desktop,
    'health': op_health, 'network': op_network,
}


def serve(op, message):
    identity = message.get('id')
    try:
        return {'id': identity, 'ok': True, **op(message)}
    except Refused as refusal:
        return {'id': identity, 'ok': False, 'code': refusal.code, 'error': str(refusal)}
    except OSError as cause:
        code = errno.errorcode.get(cause.errno, 'EIO')
        return {'id': identity, 'ok': False, 'code': code, 'error': str(cause)}
    except Exception as cause:  # whatever it is, the host gets an answer and the helper lives on
        return {'id': identity, 'ok': False, 'code': 'EFAULT', 'error': f'{type(cause).__name__}: {cause}'}


class Sentinel:
    """Tells the host of what cannot be mended here, the moment it happens: the kernel had to end a process for lack of
    memory, the disk became read-only, the X server ended. It sleeps until then: a guest at rest pays nothing for it."""

    def __init__(self, port):
        self.port = port
        self.kernel_log = os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self.kernel_log, 0, os.SEEK_END)
        self.recent = collections.deque(maxlen=40)

    def run(self):
        server = None
        while True:
            poller = select.poll()
            poller.register(self.kernel_log, select.POLLIN)
            if server is None and (found := find_x_server()):
                server = found[1]
            if server is not None:
                poller.register(server, select.POLLIN)
            # Without a server one is looked for, as it is while the guest boots.
            for fd, _ in poller.poll(None if server is not None else 1000):
                if fd == self.kernel_log:
                    self.read_kernel_log()
                else:
                    os.close(server)
                    server = None
                    self.tell('x_server', 'the X server ended')

    def read_kernel_log(self):
        while True:
            try:
                record = os.read(self.kernel_log, 8192).decode('utf-8', 'replace')
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # records were overwritten: read on from the oldest
            line = record.partition(';')[2].partition('\n')[0]
            self.recent.append(line)
            killed = re.match(r'(?:Out of memory|Memory cgroup out of memory): Killed process \d+ \((.*?)\)', line)
            if killed:
                self.tell('out_of_memory', f'the guest ran out of memory: its kernel ended {killed[1]}')
            elif line.startswith('EXT4-fs') and os.statvfs('/').f_flag & os.ST_RDONLY:
                self.tell('read_only', f'the disk of the guest became read-only ({line})')
            elif 'soft lockup' in line:
                self.tell('soft_lockup', f'soft lockup in the guest ({line})')

    def tell(self, kind, message):
        # The console is kept by the host, and shows little of the kernel's log.
        try:
            with open('/dev/ttyS0', 'w', encoding='utf-8') as console:
                console.write('\r\n'.join([*self.recent, f'gymbus-helper: {message}', '']))
        except OSError:
            pass
        line = json.dumps({'id': None, 'fault': kind, 'message': message}).encode('ascii') + b'\n'
        self.port.write(line, self.port.generation)


class Helper:
    def __init__(self, port):
        self.port = port
        self.in_flight = threading.Semaphore(MAX_IN_FLIGHT)

    def answer(self, reply, generation):
        self.port.write(json.dumps(reply).encode('ascii') + b'\n', generation)

    def work(self, op, message, generation):
        # Threads inherit the reader's rank, and so would the commands they start.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 0)
        try:
            self.answer(serve(op, message), generation)
        finally:
            self.in_flight.release()

    def take(self, line):
        generation = self.port.generation
        try:
            message = json.loads(line)
            if not isinstance(message, dict):
                raise ValueError('a request is an object')
        except (ValueError, RecursionError) as cause:
            self.answer({'id': None, 'ok': False, 'code': 'EPROTO', 'error': f'not a request: {cause}'}, generation)
            return
        name = message.get('op')
        if isinstance(name, str) and name in AT_ONCE:
            self.answer(serve(AT_ONCE[name], message), generation)
        elif not isinstance(name, str) or name not in OPS:
            self.answer({'id': message.get('id'), 'ok': False, 'code': 'ENOSYS', 'error': f'no such op: {name!r}'},
                        generation)
        elif not self.in_flight.acquire(blocking=False):
            self.answer({'id': message.get('id'), 'ok': False, 'code': 'EAGAIN',
                         'error': f'more than {MAX_IN_FLIGHT} requests in flight'}, generation)
        else:
            threading.Thread(target=self.work, args=(OPS[name], message, generation), daemon=True).start()

    def run(self):
        buffer, searched, too_long = bytearray(), 0, False
        while True:
            data = self.port.read()
            if not data:
                self.port.generation += 1
                buffer, searched, too_long = bytearray(), 0, False
                continue
            buffer += data
            while (end := buffer.find(b'\n', searched)) >= 0:
                line = bytes(buffer[:end]).strip()
                del buffer[:end + 1]
                searched = 0
                if too_long or len(line) > MAX_LINE:
                    too_long = False
                    self.answer({'id': None, 'ok': False, 'code': 'EPROTO',
                                 'error': f'a line is at most {MAX_LINE} bytes'}, self.port.generation)
                elif line:
                    self.take(line)
            searched = len(buffer)
            if len(buffer) > MAX_LINE:
                buffer, searched, too_long = bytearray(), 0, True


def main():
    # A thread here needs little; 128 of them at the default would reserve 1 GiB.
    threading.stack_size(512 << 10)
    # The reader goes before whatever else runs in the guest: a ping answers while twenty commands start.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -15)
    renew_boot_id()
    user_of({}, 'user')
    user_of({}, 'root')
    port = Port(PORT)
    threading.Thread(target=Sentinel(port).run, daemon=True).start()
    gc.collect()
    gc.freeze()
    Helper(port).run()


if __name__ == '__main__':
    main()
