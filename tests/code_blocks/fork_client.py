"""Runs a job in a fork of the fork server, and ends as it does: ``fork_client.py SOCKET KIND [ARGUMENT…]``."""

import marshal
import os
import signal
import socket
import sys


def main() -> int:
    """The exit status, as a shell has it: above 128 for a signal."""
    # The job is in the same process group and gets the signal itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        socket.send_fds(connection, [b"\0"], [0, 1, 2])
        connection.sendall(marshal.dumps((sys.argv[2], sys.argv[3:], os.getcwd(), dict(os.environ), os.getpgrp())))
        connection.shutdown(socket.SHUT_WR)
        status = int(marshal.loads(connection.makefile("rb").read()))
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main())
