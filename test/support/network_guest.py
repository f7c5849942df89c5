"""The guest's end of a network on this machine: network_guest.py PROGRAM. Descriptor 3 is the port; prints the port of TCP it listens on."""
import runpy, socket, sys

program = runpy.run_path(sys.argv[1])
listener = socket.create_server(('127.0.0.1', 0))
listener.setblocking(False)
print(listener.getsockname()[1], flush=True)
port = socket.socket(fileno=3)
port.setblocking(False)
program['Multiplexer'](port.detach(), listener).run()
