#!/usr/bin/python3
"""The guest's way to the hosts its job may reach: carries TCP connections to 127.0.0.1:3128 over the virtio-serial port
`gymbus.network` to the runner, which is the proxy at their other end and decides what may be reached. It understands
nothing of what it carries.

Frames, both ways: kind (u8), stream (u32), length (u16), so many bytes; numbers big-endian. The guest opens streams,
their numbers only rise. Each end may send WINDOW bytes on a stream before the other allows more.

Started by systemd with the listening socket as descriptor 3, at the first connection of a job that asked for hosts; it
ends with the port. One thread; what it holds is bounded by the windows.
"""

import os
import select
import socket
import struct
import sys

PORT = os.environ.get('GYMBUS_PORT', '/dev/virtio-ports/gymbus.network')
HEADER = struct.Struct('>BIH')
OPEN, DATA, WINDOW, END, RESET = range(1, 6)
CHUNK = 16 << 10
WINDOW_BYTES = 128 << 10
# The runner takes twice as many, and resets what is beyond. Further connections wait to be taken.
MOST_STREAMS = 64
# Waiting for the port; then no program is read from.
MOST_UNSENT = 256 << 10


class Stream:
    def __init__(self, connection):
        self.connection = connection
        self.credit = WINDOW_BYTES  # that may be sent to the runner
        self.out = bytearray()  # for the program
        self.owed = 0  # written to the program, not yet allowed anew
        self.program_ended = self.runner_ended = self.shut = False


class Multiplexer:
    def __init__(self, port, listener):
        self.port, self.listener = port, listener
        self.streams, self.numbers, self.newest = {}, {}, 0
        self.incoming, self.unsent = bytearray(), bytearray()
        self.poller, self.watched = select.epoll(), {}

    def watch(self, fd, events):
        before = self.watched.get(fd, 0)
        if events and not before:
            self.poller.register(fd, events)
        elif events != before:
            self.poller.modify(fd, events) if events else self.poller.unregister(fd)
        self.watched[fd] = events

    def run(self):
        while True:
            room = len(self.unsent) < MOST_UNSENT
            self.watch(self.port, select.EPOLLIN | (select.EPOLLOUT if self.unsent else 0))
            self.watch(self.listener.fileno(), select.EPOLLIN if room and len(self.streams) < MOST_STREAMS else 0)
            for stream in self.streams.values():
                reads = room and stream.credit and not stream.program_ended
                self.watch(stream.connection.fileno(),
                           (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if stream.out else 0))
            for fd, events in self.poller.poll():
                if fd == self.port:
                    self.serve_port(events)
                elif fd == self.listener.fileno():
                    self.open()
                elif fd in self.numbers:
                    self.serve_program(self.numbers[fd], events)

    def put(self, kind, number, body=b''):
        self.unsent += HEADER.pack(kind, number, len(body)) + body

    def open(self):
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return  # gone again
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.newest += 1
        self.streams[self.newest] = Stream(connection)
        self.numbers[connection.fileno()] = self.newest
        self.put(OPEN, self.newest)

    def close(self, number, tell=True):
        stream = self.streams.pop(number)
        fd = stream.connection.fileno()
        self.watch(fd, 0)
        del self.numbers[fd], self.watched[fd]
        stream.connection.close()
        if tell:
            self.put(RESET, number)

    def serve_port(self, events):
        if events & select.EPOLLOUT:
            try:
                del self.unsent[:os.write(self.port, self.unsent[:32 << 10])]
            except BlockingIOError:
                pass
        if events & (select.EPOLLHUP | select.EPOLLERR):
            sys.exit('the runner has closed the port')
        if events & select.EPOLLIN:
            # The kernel gives a page at a time.
            for _ in range(16):
                try:
                    data = os.read(self.port, 64 << 10)
                except BlockingIOError:
                    break
                if not data:
                    sys.exit('the runner has closed the port')
                self.incoming += data
            self.take_frames()

    def take_frames(self):
        at = 0
        while len(self.incoming) - at >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self.incoming, at)
            end = at + HEADER.size + length
            if len(self.incoming) < end:
                break
            if number in self.streams:  # else it was closed while this was under way
                self.take(kind, number, self.streams[number], bytes(self.incoming[at + HEADER.size:end]))
            at = end
        del self.incoming[:at]

    def take(self, kind, number, stream, body):
        if kind == WINDOW:
            stream.credit += int.from_bytes(body, 'big')
        elif kind == RESET:
            self.close(number, tell=False)
        else:
            stream.out += body
            stream.runner_ended = stream.runner_ended or kind == END
            self.write(number, stream)

    def serve_program(self, number, events):
        stream = self.streams[number]
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and not stream.program_ended and stream.credit:
            try:
                data = stream.connection.recv(min(CHUNK, stream.credit))
            except BlockingIOError:
                data = None
            except OSError:
                return self.close(number)
            if data:
                stream.credit -= len(data)
                self.put(DATA, number, data)
            elif data == b'':
                stream.program_ended = True
                self.put(END, number)
        return self.write(number, stream)

    def write(self, number, stream):
        """What there is for the program; then, once both have ended, the stream is over."""
        try:
            sent = stream.connection.send(stream.out) if stream.out else 0
            if stream.runner_ended and sent == len(stream.out) and not stream.shut:
                stream.shut = True
                stream.connection.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            self.close(number)
            return
        del stream.out[:sent]
        stream.owed += sent
        if stream.owed >= WINDOW_BYTES // 2 and not stream.runner_ended:
            self.put(WINDOW, number, stream.owed.to_bytes(4, 'big'))
            stream.owed = 0
        if stream.shut and stream.program_ended:
            self.close(number, tell=False)


if __name__ == '__main__':
    listener = socket.socket(fileno=3)
    listener.setblocking(False)
    Multiplexer(os.open(PORT, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), listener).run()
