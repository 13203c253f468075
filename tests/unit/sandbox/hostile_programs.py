"""Programs of compromised sandboxes, which send anything. The argument `behavior` selects the program."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Callable

SOCKET = 3
KEPT: list[bytes] = []


def open_program(behavior: str = "echo") -> Callable[[bytes], bytes]:
    """Return the function that answers requests with the given behavior."""
    if behavior == "fails to load":
        raise RuntimeError("the program is broken")
    return BEHAVIORS[behavior]


def echo(request: bytes) -> bytes:
    return request


def echo_slowly(request: bytes) -> bytes:
    if request.startswith(b"slow"):
        time.sleep(1)
    return request


def keep_memory(request: bytes) -> bytes:
    KEPT.append(b"x" * (8 << 20))
    return b""


def whether_the_socket_is_inherited(request: bytes) -> bytes:
    return str(os.get_inheritable(SOCKET)).encode()


def send_garbage(request: bytes) -> bytes:
    os.write(SOCKET, os.urandom(4096))
    return forever(request)


def send_too_much(request: bytes) -> bytes:
    os.write(SOCKET, struct.pack(">I", 0xFFFFFFFF))
    while True:
        os.write(SOCKET, b"x" * 65536)


def send_more_than_it_says(request: bytes) -> bytes:
    os.write(SOCKET, struct.pack(">I", 2) + b"abc")
    return forever(request)


def send_half_a_header(request: bytes) -> bytes:
    os.write(SOCKET, b"\0\0")
    os._exit(0)


def send_half_a_frame(request: bytes) -> bytes:
    os.write(SOCKET, struct.pack(">I", 10) + b"abc")
    os._exit(0)


def send_nothing(request: bytes) -> bytes:
    os._exit(0)


def send_a_byte_now_and_then(request: bytes) -> bytes:
    os.write(SOCKET, struct.pack(">I", 1_000_000))
    while True:
        os.write(SOCKET, b"x")
        time.sleep(0.01)


def send_another_reply_later(request: bytes) -> bytes:
    if not os.fork():
        time.sleep(0.2)
        os.write(SOCKET, struct.pack(">I", 3) + b"lie")
        os._exit(0)
    return b"true"


def complain_forever(request: bytes) -> bytes:
    while True:
        sys.stderr.write("noise " * 10_000 + "\n")


def complain(request: bytes) -> bytes:
    sys.stderr.write("\x1b[31mthe \x07reason\n")
    sys.stderr.flush()
    os._exit(3)


def forever(request: bytes) -> bytes:
    while True:
        time.sleep(1)


def compute_forever(request: bytes) -> bytes:
    while True:
        pass


def take_memory(request: bytes) -> bytes:
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def raise_error(request: bytes) -> bytes:
    raise ValueError("no reply")


def try_everything(request: bytes) -> bytes:
    """Try to use files and the network. Return the names of what succeeded, and the module path."""
    succeeded = []
    attempts: dict[str, Callable[[], object]] = {
        "read": lambda: os.open("/etc/hostname", os.O_RDONLY),
        "write": lambda: os.write(os.open("/tmp/runnel-sandbox-test", os.O_WRONLY | os.O_CREAT), b"x"),
        "connect": socket.socket,
    }
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        succeeded.append(name)
    return " ".join([*succeeded, *(f"path={folder}" for folder in sys.path)]).encode()


BEHAVIORS: dict[str, Callable[[bytes], bytes]] = {
    name.replace("_", " "): value for name, value in list(globals().items()) if callable(value)
}
