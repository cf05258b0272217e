"""One TCP stream between two nodes, for measuring a link.

usage: stream.py receive          accepts one stream, prints {"bytes", "seconds"} from its first byte to its last
       stream.py send HOST BYTES  sends so many bytes; 0: until it is ended
"""
import json
import socket
import sys
import time

PORT = 5000
CHUNK = 1 << 20


def receive():
    with socket.create_server(("", PORT)) as server:
        connection, _ = server.accept()
    buffer = bytearray(CHUNK)
    total = connection.recv_into(buffer)
    first = time.monotonic()
    last = first
    while count := connection.recv_into(buffer):
        total += count
        last = time.monotonic()
    print(json.dumps({"bytes": total, "seconds": last - first}))


def send(host, total):
    connection = connect(host, time.monotonic() + 5)
    chunk = bytes(CHUNK)
    left = total
    while total == 0 or left > 0:
        left -= connection.send(chunk if total == 0 else chunk[:left])


def connect(host, deadline):
    """The receiver may still be starting."""
    while True:
        try:
            return socket.create_connection((host, PORT))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


if sys.argv[1] == "receive":
    receive()
else:
    send(sys.argv[2], int(sys.argv[3]))
