"""Sandbox processes enforce their limits, report why they ended, and reject bad replies."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from runnel.sandbox.child_main import REQUEST
from runnel.sandbox.pool import SandboxPool
from runnel.sandbox.process import BadReplyError, EndCause, SandboxError, SandboxProcess, SandboxProgram

Start = Callable[..., SandboxProcess]
MEGABYTES = 64


def program_of(behavior: str, *, cpu_seconds: float = 20.0, can_start_processes: bool = False) -> SandboxProgram:
    return SandboxProgram(
        "hostile_programs",
        (),
        MEGABYTES,
        cpu_seconds,
        arguments={"behavior": behavior},
        folder=Path(__file__).parent,
        can_start_processes=can_start_processes,
    )


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[SandboxProcess] = []

    def make(behavior: str, **limits: float) -> SandboxProcess:
        started.append(SandboxProcess(program_of(behavior, **limits)))  # type: ignore[arg-type]
        return started[-1]

    yield make
    for process in started:
        process.close()


def ask(process: SandboxProcess, request: bytes = b"a", *, seconds: float = 30.0, max_reply: int = 100) -> bytes:
    return process.ask(request, bytes, seconds=seconds, max_reply=max_reply)


def is_gone(process: SandboxProcess) -> bool:
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return not process.is_usable()
    return False


@pytest.mark.parametrize("size", [0, 1, 100, 5_000_000])
def test_reply_up_to_the_size_limit_is_received(start: Start, size: int) -> None:
    process = start("echo")
    assert ask(process, b"x" * size, max_reply=size) == b"x" * size
    assert ask(process, b"b") == b"b"
    assert (process.served, process.is_usable()) == (2, True)


def test_reply_beyond_the_size_limit_is_rejected(start: Start) -> None:
    process = start("echo")
    with pytest.raises(SandboxError, match="the reply has more than 100 bytes") as caught:
        ask(process, b"x" * 101)
    assert caught.value.cause is EndCause.BAD_REPLY
    assert is_gone(process)


@pytest.mark.parametrize(
    ("behavior", "cause", "reason"),
    [
        ("send garbage", EndCause.BAD_REPLY, "sent a bad reply"),
        ("send too much", EndCause.BAD_REPLY, "the reply has more than 100 bytes"),
        ("send more than it says", EndCause.BAD_REPLY, "the reply is longer than its header says"),
        ("send half a header", EndCause.ENDED, "ended with code 0"),
        ("send half a frame", EndCause.ENDED, "ended with code 0"),
        ("send nothing", EndCause.ENDED, "ended with code 0"),
        ("compute forever", EndCause.CPU_TIME, "it took more than 0.5 seconds of CPU time"),
        ("take memory", EndCause.MEMORY, "it took more than 64 MB of memory"),
        ("complain", EndCause.ENDED, "its process ended with code 3: �[31mthe �reason"),
        ("raise error", EndCause.ENDED, "its process ended with code 1: ValueError: no reply"),
    ],
)
def test_misbehaving_child_is_ended_with_a_reason(start: Start, behavior: str, cause: EndCause, reason: str) -> None:
    process = start(behavior, cpu_seconds=0.5)
    with pytest.raises(SandboxError) as caught:
        ask(process)
    assert (caught.value.cause, reason in caught.value.reason) == (cause, True), caught.value.reason
    assert is_gone(process)


@pytest.mark.parametrize("behavior", ["forever", "send a byte now and then", "complain forever"])
def test_endless_child_is_ended_at_the_deadline(start: Start, behavior: str) -> None:
    process = start(behavior)
    with pytest.raises(SandboxError, match=r"it took more than 0\.5 seconds$") as caught:
        ask(process, seconds=0.5, max_reply=1_000_000)
    assert caught.value.cause is EndCause.DEADLINE
    assert is_gone(process)


def test_child_that_does_not_read_is_ended_at_the_deadline(start: Start) -> None:
    process = start("forever")
    with pytest.raises(SandboxError) as caught:
        ask(process, b"x" * (64 << 20), seconds=0.5)
    assert caught.value.cause in (EndCause.DEADLINE, EndCause.MEMORY)


def test_child_is_ended_if_its_reply_is_rejected(start: Start) -> None:
    def refuse(reply: memoryview) -> None:
        raise BadReplyError("it is wrong")

    process = start("echo")
    with pytest.raises(SandboxError, match="sent a bad reply: it is wrong"):
        process.ask(b"a", refuse, seconds=30, max_reply=100)
    assert is_gone(process)


def test_second_reply_is_not_read_for_the_next_request() -> None:
    program = program_of("send another reply later", can_start_processes=True)
    with SandboxPool(program, 1) as pool:
        for _ in range(3):
            assert pool.ask(b"a", bytes, seconds=30, max_reply=100) == b"true"
            time.sleep(0.4)


def test_error_while_loading_a_program_is_reported() -> None:
    with pytest.raises(SandboxError, match="RuntimeError: the program is broken") as caught:
        SandboxProcess(program_of("fails to load"))
    assert caught.value.cause is EndCause.NOT_STARTED


def test_child_cannot_open_files_and_imports_only_its_packages(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("RUNNEL_TOKEN", "hush")
    process = start("try everything")
    words = ask(process, max_reply=10_000).decode().split()
    assert not {"read", "write", "connect"} & set(words)
    path = [Path(word[5:]) for word in words if word.startswith("path=")]
    assert str(Path(__file__).parent) in map(str, path)
    assert not any("site-packages" in str(folder) or folder.is_relative_to(tmp_path) for folder in path)
    environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    assert environment == b"LC_ALL=C.UTF-8\0XML_CATALOG_FILES=\0"
    assert Path(f"/proc/{process.pid}/cwd").readlink() == Path("/")


def test_resource_limits_are_those_of_the_program(start: Start) -> None:
    process = start("echo")
    limits = Path(f"/proc/{process.pid}/limits").read_text()
    for name, limit in {"open files": "4", "file size": "0", "core file size": "0", "processes": "0"}.items():
        (line,) = [line for line in limits.splitlines() if line.startswith(f"Max {name} ")]
        assert line.split(f"Max {name}")[1].split()[:2] == [limit, limit]
    (line,) = [line for line in limits.splitlines() if line.startswith("Max address space")]
    assert int(line.split()[3]) < (MEGABYTES << 20) + (512 << 20)


def test_pool_replaces_a_child_and_reports_its_served_requests() -> None:
    def fail_on_b(reply: memoryview) -> bytes:
        if bytes(reply) == b"b":
            raise BadReplyError("b")
        return bytes(reply)

    with SandboxPool(program_of("echo"), 1) as pool:
        assert pool.ask(b"a", fail_on_b, seconds=30, max_reply=9) == b"a"
        (first,) = pool.pids()
        with pytest.raises(SandboxError) as caught:
            pool.ask(b"b", fail_on_b, seconds=30, max_reply=9)
        assert caught.value.served == 1
        assert pool.ask(b"c", fail_on_b, seconds=30, max_reply=9) == b"c"
        assert pool.pids() != [first]
        assert pool.ask(b"d", fail_on_b, seconds=30, max_reply=9, fresh=True) == b"d"
        assert len(pool.pids()) == 1


def test_closing_a_pool_ends_busy_children() -> None:
    pool = SandboxPool(program_of("forever"), 1)
    errors: list[SandboxError] = []

    def wait() -> None:
        try:
            pool.ask(b"a", bytes, seconds=60, max_reply=9)
        except SandboxError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not pool._busy:
        time.sleep(0.01)
    pool.close()
    waiting.join(30)
    assert [error.cause for error in errors] == [EndCause.CLOSED]
    with pytest.raises(SandboxError, match="closed"):
        pool.ask(b"a", bytes, seconds=60, max_reply=9)


def test_children_end_with_their_parent() -> None:
    process = SandboxProcess(program_of("echo"))
    process._socket.close()  # as the kernel does when a process is killed
    deadline = time.monotonic() + 60
    while process._process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process._process.poll() == 0
    process.close()


def test_frame_header_has_four_bytes() -> None:
    # The hostile programs write frames themselves.
    from runnel.sandbox.child_main import LENGTH

    assert LENGTH.pack(7) == struct.pack(">I", 7)


def test_reply_of_an_interrupted_request_is_discarded() -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with SandboxPool(program_of("echo slowly"), 1) as pool:
            assert pool.ask(b"a", bytes, seconds=60, max_reply=10) == b"a"
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGALRM))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                pool.ask(b"slow", bytes, seconds=60, max_reply=10)
            assert pool.ask(b"b", bytes, seconds=60, max_reply=10) == b"b"
    finally:
        signal.signal(signal.SIGALRM, before)


def test_process_that_keeps_memory_is_replaced() -> None:
    with SandboxPool(program_of("keep memory"), 1) as pool:
        for _ in range(2 * MEGABYTES // 8):
            assert pool.ask(b"", bytes, seconds=60, max_reply=10) == b""


def test_missing_file_descriptor_raises_sandbox_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", refuse)
    with pytest.raises(SandboxError, match="Too many open files") as caught:
        SandboxProcess(program_of("echo"))
    assert caught.value.cause is EndCause.NOT_STARTED


def test_request_needs_no_free_file_descriptor(start: Start) -> None:
    process = start("echo")
    first_free = os.dup(process._stderr)
    os.close(first_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(process._stderr)
        assert ask(process, b"here") == b"here"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_busy_child_ends_by_itself_without_a_parent(start: Start) -> None:
    process = start("forever")
    process._socket.send(REQUEST.pack(1, 0.0) + b"a")  # as if this process had been killed after sending
    deadline = time.monotonic() + 120
    while process._process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process._process.poll() == -signal.SIGALRM


def test_program_has_the_permissions_that_it_declares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RUNNEL_TOKEN", "hush")
    program = replace(
        program_of("try everything", can_start_processes=True),
        packages=None,
        cpu_seconds=None,
        files=None,
        environment={"PATH": "/usr/bin"},
    )
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    process = SandboxProcess(program)
    try:
        words = ask(process, max_reply=100_000).decode().split()
        assert {"read", "write", "connect"} <= set(words)
        path = [word[5:] for word in words if word.startswith("path=")]
        assert path[: len(sys.path)] == list(dict.fromkeys(filter(None, sys.path)))
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max address space")]
        assert int(line.split()[3]) < (MEGABYTES << 20) + (512 << 20), "memory is limited in every sandbox"
        assert Path(f"/proc/{process.pid}/environ").read_bytes() == b"PATH=/usr/bin\0"
    finally:
        process.close()


def _close(pool: SandboxPool, answers: multiprocessing.Queue[str]) -> None:
    pool.close()
    answers.put("closed")


def test_forked_process_can_close_a_pool_whose_lock_was_held() -> None:
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[str] = context.Queue()
    with SandboxPool(program_of("echo"), 1) as pool:
        assert pool.ask(b"before", bytes, seconds=60, max_reply=100) == b"before"
        with pool._lock:  # as another thread may hold it during the fork
            fork = context.Process(target=_close, args=(pool, answers))
            fork.start()
        try:
            assert answers.get(timeout=60) == "closed"
        finally:
            fork.kill()
            fork.join()
        assert pool.ask(b"after", bytes, seconds=60, max_reply=100) == b"after"


def test_sandbox_starts_without_standard_streams(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_process import SandboxProcess, ask, program_of
for behavior in ("echo", "whether the socket is inherited"):
    process = SandboxProcess(program_of(behavior))
    (Path({str(tmp_path)!r}) / behavior).write_bytes(ask(process, b"here"))
    process.close()
"""
    (tmp_path / "script.py").write_text(script)
    command = f"{sys.executable} {tmp_path / 'script.py'} 0<&- 1>&- 2>&-"
    subprocess.run(["sh", "-c", command], check=True, timeout=300)
    assert (tmp_path / "echo").read_bytes() == b"here"
    # Without standard streams, the descriptor has the right number from the start and is not duplicated.
    assert (tmp_path / "whether the socket is inherited").read_bytes() == b"False"
