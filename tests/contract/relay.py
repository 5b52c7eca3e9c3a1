"""A server process that leaves everything to a test: it passes its standard streams on to a socket of the test.

    python -I -S relay.py PORT

It exits with code 0 after the end of its input, and with code 1 when the test closes the socket before.
"""

import os
import socket
import sys
import threading

CHUNK = 65536


def main() -> None:
    test = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    input_ended = threading.Event()

    def forward_input() -> None:
        while data := os.read(0, CHUNK):
            test.sendall(data)
        input_ended.set()
        test.shutdown(socket.SHUT_WR)

    threading.Thread(target=forward_input, daemon=True).start()
    try:
        while data := test.recv(CHUNK):
            while data:
                data = data[os.write(1, data) :]
    finally:
        os._exit(0 if input_ended.is_set() else 1)


if __name__ == "__main__":
    main()
