"""Prints a port of this host that was free a moment ago."""

import socket

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    print(free.getsockname()[1])
