"""Delivery, measured: from committed matches to endpoints that took their messages. Prints one JSON line per figure.

    python benchmarks/deliver.py [--due 100000] [--webhooks 5000] [--mails 2000] [--files 1000] [--items 2000]

Webhooks go to a real HTTP server and mail to a real SMTP server, each in a process of its own on loopback. The many
digests of one period go to a sink that takes everything at once, so that the figure is Runnel's own work. The naive
way (one message after the other: read it, send it, settle it in a transaction of its own) is measured in the same
run, on some of the same messages. Everything is seeded; counters are the same everywhere, times are this machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import resource
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from sqlalchemy import event, insert, select, text
from tests import catalog_rows

from runnel.catalog.declared import feeds
from runnel.catalog.logs import match_segments
from runnel.catalog.store import leases, schema
from runnel.catalog.store.connection import now
from runnel.catalog.store.sealed_secrets import SIGNING_KEYS, seal
from runnel.delivery.dispatcher import Dispatcher
from runnel.engine import Engine, connect
from runnel.model.message import MessageState
from runnel.settings import Settings
from runnel.sinks.contract import Delivery, RemoteSink, Route
from runnel.sinks.registry import OPENED, open_sink
from runnel.streaming.item_source import ItemReader
from runnel.streaming.job import FORM, Job
from runnel.streaming.match_sink import MatchWriter
from runnel.streaming.worker.match_job import match_slices
from runnel.testing import FakeClock

_FEEDS = 1_000
_WORDS_IN_A_TITLE = 20
_HOSTS = 25
_NAIVE = 300
_HOUR = timedelta(hours=1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--due", type=int, default=100_000)
    parser.add_argument("--webhooks", type=int, default=5_000)
    parser.add_argument("--mails", type=int, default=2_000)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--items", type=int, default=2_000)
    options = parser.parse_args()
    # The sink that takes everything is not installed, so it is put in place here.
    OPENED[NullSink.kind] = NullSink()
    with _serving(_serve_http) as web, _serving(_serve_mail) as mail:
        hooks = [f"http://127.0.0.{number % _HOSTS + 1}:{web}/{number}" for number in range(options.webhooks)]
        _measure("webhooks", "webhook", hooks, options.items)
        people = [f"reader{number}@mail{number % _HOSTS}.example" for number in range(options.mails)]
        _measure("mail", "mail", people, options.items, smtp_port=mail)
    _measure("files", "jsonl", [f"{number % 100}/{number}.jsonl" for number in range(options.files)], options.items)
    nothing = [f"null://host{number % 1000}/{number}" for number in range(options.due)]
    _measure("due_in_one_period", "null", nothing, options.items)


def say(figure: str, **values: Any) -> None:
    """Print one figure as a line of JSON."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
    print(json.dumps({"benchmark": "deliver", "figure": figure, **rounded}), flush=True)


def _measure(figure: str, kind: str, targets: Sequence[str], items: int, **settings: Any) -> None:
    """All subscriptions have a period that is over at once; then the same again, naively, for some."""
    if not targets:
        return
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    chosen = {
        "allowed_addresses": ("127.0.0.0/8",),
        "smtp_host": "127.0.0.1",
        "smtp_security": "none",
        "mail_from": "runnel@mail.example",
        "public_url": "https://runnel.example",
    } | settings
    with (
        tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder,
        connect(Path(folder) / "root", clock=clock, **chosen) as engine,
    ):
        epoch = _prepare(engine, kind, targets, items)
        clock.advance(_HOUR)
        _send_all(figure, engine, epoch)
        clock.advance(_HOUR)
        _publish(engine, items, seed=2)
        _match(engine, epoch)
        _send_naively(figure, engine, epoch)


# --- the world -----------------------------------------------------------------------------------------------------


def _prepare(engine: Engine, kind: str, targets: Sequence[str], items: int) -> int:
    """Feeds, subscriptions with a period, and matched items; gives the epoch."""
    script = "".join(f"create feed F{n} from Wire where title contains 'w{n}';" for n in range(_FEEDS))
    live = "".join(f"subscribe to F{n} output log;" for n in range(_FEEDS))
    engine.execute("register feed Wire;" + script + live)
    with engine.workspace.catalog.write() as connection:
        epoch = leases.acquire(connection, 1e6).epoch
        names = {name: number for number, name in feeds.feed_names(connection).items()}
        moment = now(connection)
        rows = [
            {
                "feed": names[f"F{number % _FEEDS}"],
                "kind": kind,
                "target": target,
                "period": int(_HOUR.total_seconds() * 1e6),
                "due": moment + int(_HOUR.total_seconds() * 1e6),
                "since": 0,
                "paused": 0,
                "created": moment,
                "owner": 1,
            }
            for number, target in enumerate(targets)
        ]
        connection.execute(insert(schema.subscriptions), rows)
        column = schema.subscriptions.c
        numbers = connection.execute(select(column.id).where(column.kind == kind)).scalars().all()
        connection.execute(insert(schema.cursors), [{"subscription": value, "sequence": 0} for value in numbers])
        keys = [
            {
                "subscription": value,
                "created": moment,
                **seal(connection, SIGNING_KEYS, value, secrets.token_bytes(32)),
            }
            for value in numbers
        ]
        connection.execute(insert(schema.signing_keys), keys)
    _publish(engine, items, seed=1)
    _match(engine, epoch)
    return epoch


def _publish(engine: Engine, items: int, *, seed: int) -> None:
    """Items whose titles are words of the queries."""
    dice = random.Random(seed)
    engine.publish(
        "Wire",
        [
            {
                "id": f"{seed}-{number}",
                "title": " ".join(f"w{dice.randrange(_FEEDS)}" for _ in range(_WORDS_IN_A_TITLE)),
                "link": f"https://news.example/{seed}/{number}",
                "description": "A text of the length that summaries of news have. " * 4,
            }
            for number in range(items)
        ],
    )


def _match(engine: Engine, epoch: int) -> None:
    """What Spark does with the same parts, in this process."""
    root = engine.workspace
    with root.catalog.write() as connection:
        lineage = match_segments.start_lineage(connection, FORM, reason="measuring")
    job = Job(
        catalog=root.catalog.url,
        catalog_max_bytes=0,
        storage=root.storage.url,
        lineage=lineage.id,
        after_sequence=lineage.after_sequence,
        epoch=epoch,
        max_batch_items=20_000,
        max_batch_bytes=1 << 28,
        slice_items=1_000,
        parallelism=1,
    )
    reader, writer = ItemReader(job), MatchWriter(job)
    start, batch = reader.initialOffset(), 0
    while (end := reader.latestOffset(start, None)) != start:
        step = match_slices(job.storage, job.lineage)
        parts = (step(reader.read(partition)) for partition in reader.partitions(start, end))
        writer.commit([writer.write(part) for part in parts], batch)
        start, batch = end, batch + 1


# --- measuring -----------------------------------------------------------------------------------------------------


def _send_all(figure: str, engine: Engine, epoch: int) -> None:
    dispatcher = engine._dispatcher()
    writes = _Writes(engine)
    before = _peak_megabytes()
    started, cpu = time.perf_counter(), time.process_time()
    while dispatcher.recorder.record(epoch):
        pass
    recorded, writes_recording = time.perf_counter(), writes.count
    taken = _drain(dispatcher, epoch)
    ended = time.perf_counter()
    cpu_seconds = time.process_time() - cpu
    dispatcher.close()
    with engine.workspace.catalog.read() as connection:
        counts = catalog_rows.message_counts(connection)
        delivered = connection.execute(text("select sum(items) from messages where state = 'done'")).scalar_one()
    assert counts == {"done": taken}, f"{counts}, and {taken} taken"
    say(
        figure,
        messages=taken,
        items_per_message=delivered / taken,
        record_seconds=recorded - started,
        send_seconds=ended - recorded,
        messages_per_second=taken / (ended - recorded),
        cpu_seconds=cpu_seconds,
        transactions_recording=writes_recording,
        transactions_sending=writes.count - writes_recording,
        match_log_reads=dispatcher._composer._match_reader._matches.reads,
        peak_megabytes=_peak_megabytes(),
        peak_megabytes_before=before,
    )


def _drain(dispatcher: Dispatcher, epoch: int) -> int:
    taken = 0
    while results := dispatcher.send(epoch, wait=True):
        taken += results
    return taken


def _send_naively(figure: str, engine: Engine, epoch: int) -> None:
    """One message after the other: recorded, read, sent and settled by itself."""
    dispatcher = engine._dispatcher()
    writes = _Writes(engine)
    while dispatcher.recorder.record(epoch):
        pass
    with engine.workspace.catalog.read() as connection:
        messages = catalog_rows.open_messages(connection)[:_NAIVE]
    counted = writes.count
    started = time.perf_counter()
    asyncio.run(_one_by_one(engine, epoch, [message.subscription for message in messages]))
    seconds = time.perf_counter() - started
    say(
        f"{figure}_naive",
        messages=len(messages),
        send_seconds=seconds,
        messages_per_second=len(messages) / seconds,
        transactions_sending=writes.count - counted,
    )


async def _one_by_one(engine: Engine, epoch: int, subscriptions: Sequence[int]) -> None:
    from runnel.net.http_client import http_client_of

    root = engine.workspace
    async with http_client_of(root.settings) as door:
        routes: dict[str, Any] = {}
        composer = engine._dispatcher()._composer
        for subscription in subscriptions:
            [queue] = composer.compose([subscription], epoch).queues
            [prepared] = queue.messages
            assert prepared.delivery is not None
            kind = prepared.delivery.subscription.kind
            sink: Any = open_sink(kind)
            if isinstance(sink, RemoteSink):
                route = routes.setdefault(kind, sink.connect(root.settings, door))
                outcome = await route.deliver(prepared.delivery)
            else:
                outcome = sink.deliver(prepared.delivery)
            with root.catalog.write() as connection:
                leases.check(connection, epoch)
                catalog_rows.settle(connection, prepared.message, MessageState.DONE, outcome)
        for route in routes.values():
            await route.close()


class _Writes:
    """Counts the transactions that write."""

    def __init__(self, engine: Engine) -> None:
        self.count = 0

        @event.listens_for(engine.workspace.catalog._engine, "begin")
        def begun(connection: Any) -> None:
            self.count += bool(connection.get_execution_options().get("runnel_write"))


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# --- endpoints -----------------------------------------------------------------------------------------------------


class NullSink(RemoteSink, Route):
    """An endpoint that takes everything at once."""

    kind = "null"

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        return target

    def host(self, target: str) -> str:
        return target.split("/")[2]

    def connect(self, settings: Settings, client: Any) -> NullSink:
        return self

    async def deliver(self, delivery: Delivery) -> str:
        return f"{len(delivery.items)} items taken"


@contextmanager
def _serving(serve: Callable[[Pipe], None]) -> Iterator[int]:
    """A server in a process of its own; gives its port."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield int(ours.recv())
    finally:
        ours.send("end")
        process.join(10)
        if process.is_alive():
            process.kill()


def _serve_http(pipe: Pipe) -> None:
    from aiohttp import web

    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=204)

    async def serve() -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/{tail:.*}", take)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", 0))  # every address of loopback, so that there are several hosts
        await web.SockSite(runner, listener).start()
        pipe.send(listener.getsockname()[1])
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        await runner.cleanup()

    asyncio.run(serve())


def _serve_mail(pipe: Pipe) -> None:
    from aiosmtpd.controller import Controller

    class Box:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
            return "250 taken"

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    controller = Controller(Box(), hostname="127.0.0.1", port=port)
    controller.start()
    pipe.send(port)
    pipe.recv()
    controller.stop()


if __name__ == "__main__":
    main()
