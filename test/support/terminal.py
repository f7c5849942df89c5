"""Runs a command in a pseudo-terminal: terminal.py COLUMNS ROWS COMMAND...

Standard input is what is typed (a byte 3 is a Ctrl-C), standard output what the terminal is sent. Ends with the command's
exit code, or 128 + the number of the signal it died of. When standard input ends, typing ends; the command goes on.
"""
import fcntl, os, pty, select, struct, sys, termios

columns, rows = int(sys.argv[1]), int(sys.argv[2])
pid, terminal = pty.fork()
if pid == 0:
    # Set in the child, before it looks: its standard input is the terminal.
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    os.execvp(sys.argv[3], sys.argv[3:])

typing = [0]
while True:
    readable, _, _ = select.select([terminal] + typing, [], [])
    if 0 in readable:
        typed = os.read(0, 4096)
        if not typed:
            typing = []
        os.write(terminal, typed)
    if terminal in readable:
        try:
            shown = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not shown:
            break
        try:
            os.write(1, shown)
        except BrokenPipeError:  # nobody looks any more: hang up
            sys.exit(129)

_, status = os.waitpid(pid, 0)
code = os.waitstatus_to_exitcode(status)
sys.exit(code if code >= 0 else 128 - code)
