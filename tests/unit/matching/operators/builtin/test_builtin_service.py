"""Services over HTTP, against a real server on loopback: batches, failures of parts, slowness, nonsense, secrets."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.services import refusing_port

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.builtin import service as module
from runnel.matching.operators.builtin.service import Service, split_into_chunks
from runnel.matching.operators.builtin.service_messages import read_answers
from runnel.matching.operators.plugins.contract import FailedCall, OperatorCall, OperatorContext
from runnel.model.operator import HOLDS

Respond = Callable[["Endpoint", dict[str, Any]], Awaitable[web.StreamResponse]]


@dataclass
class Endpoint:
    """What a server was asked, and how it answers now."""

    url: str = ""
    respond: Respond | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            body = await request.json()
            self.asked.append(body)
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
            assert self.respond is not None
            return await self.respond(self, body)
        finally:
            self.under_way -= 1


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    results = Endpoint(respond=doubled)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        application = web.Application(client_max_size=64 << 20)
        application.router.add_post("/ask", results.handle)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        results.url = f"http://127.0.0.1:{runner.addresses[0][1]}/ask"
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
    yield results
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def opened() -> Iterator[Callable[..., Service]]:
    made: list[Service] = []

    def make(endpoint: Endpoint, *, seconds: float = 10.0, concurrency: int = 1, **settings: str) -> Service:
        place = OperatorContext(
            {"url": endpoint.url, **settings},
            allowed_addresses=("127.0.0.1",),
            user_agent="Runnel/test",
            time_limit=seconds,
            concurrency=concurrency,
        )
        made.append(Service(place))
        return made[-1]

    yield make
    for service in made:
        service.close()


async def doubled(endpoint: Endpoint, body: dict[str, Any]) -> web.StreamResponse:
    """Every call is answered with twice its attribute `n`."""
    return web.json_response({"answers": [{"rows": [[2 * call["attributes"]["n"][0]]]} for call in body["asks"]]})


def saying(text: str | bytes, status: int = 200, **headers: str) -> Respond:
    async def respond(endpoint: Endpoint, body: dict[str, Any]) -> web.StreamResponse:
        data = text.encode() if isinstance(text, str) else text
        return web.Response(body=data, status=status, headers=headers, content_type="application/json")

    return respond


def numbered(count: int) -> list[OperatorCall]:
    return [OperatorCall({"n": (float(number),)}) for number in range(count)]


def twice(count: int) -> list[Any]:
    return [((2.0 * number,),) for number in range(count)]


Opened = Callable[..., Service]


def test_what_is_asked_and_answered(endpoint: Endpoint, opened: Opened) -> None:
    moment = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
    service = opened(endpoint, name="mobs")
    calls = [OperatorCall({"n": (1.0,), "title": ("Müse", True), "published": (moment,)}, ("Bronx", ("a", 2.0), 3.0))]
    assert service.answer(calls) == [((2.0,),)]
    assert service.answer([]) == []
    assert endpoint.asked == [
        {
            "operator": "mobs",
            "asks": [
                {
                    "attributes": {"n": [1.0], "title": ["Müse", True], "published": ["2026-11-15T09:30:00+00:00"]},
                    "inputs": ["Bronx", ["a", 2.0], 3.0],
                }
            ],
        }
    ]
    assert endpoint.headers[0]["user-agent"] == "Runnel/test"
    assert "authorization" not in endpoint.headers[0]


def test_asks_go_in_batches_several_at_once(endpoint: Endpoint, opened: Opened) -> None:
    together = threading.Barrier(3)

    async def waiting(endpoint: Endpoint, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.to_thread(together.wait, 10)  # Nobody is answered before three are under way.
        return await doubled(endpoint, body)

    endpoint.respond = waiting
    service = opened(endpoint, concurrency=3, most="10")
    assert service.answer(numbered(60)) == twice(60)
    assert endpoint.most_under_way == 3
    assert [len(body["asks"]) for body in endpoint.asked] == [10] * 6


def test_threads_may_ask_at_once(endpoint: Endpoint, opened: Opened) -> None:
    service = opened(endpoint, concurrency=2)
    values: list[Any] = []
    threads = [threading.Thread(target=lambda: values.append(service.answer(numbered(20)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [twice(20)] * 4
    assert endpoint.most_under_way <= 2


def test_a_failed_answer_fails_only_its_call(endpoint: Endpoint, opened: Opened) -> None:
    answers = [
        {"rows": []},
        {"rows": [[]]},
        {"rows": [["a", 1, True], ["a", 1, True], ["b", 2.5, False]]},
        {"error": "no picture\x1b[31m in it"},
        {"error": "never", "passing": False},
        {"rows": [[None]]},
        {"rows": [[1], [1, 2]]},
        {"rows": "no"},
        {"rows": [[{}]]},
        {"rows": [[0]] * 2000},
        7,
        {"rows": [[10**400]]},
    ]
    endpoint.respond = saying(json.dumps({"answers": answers}))
    answer = opened(endpoint).answer(numbered(len(answers)))
    assert answer[:3] == [(), HOLDS, (("a", 1.0, True), ("b", 2.5, False))]
    assert answer[3] == FailedCall("the service reports: no picture [31m in it")
    assert answer[4] == FailedCall("the service reports: never", passing=False)
    assert all(isinstance(entry, FailedCall) and not entry.passing for entry in answer[5:])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "not JSON in UTF-8"),
        ("{", "not JSON in UTF-8"),
        ("[1]", "with a list `answers`"),
        ('{"answers": 7}', "with a list `answers`"),
        ('{"answers": []}', "0 answers to 2 calls"),
        ('{"answers": [{"rows": []}, {"rows": []}, {"rows": []}]}', "3 answers to 2 calls"),
        ('{"answers": [{"rows": [[NaN]]}, {"rows": []}]}', "not JSON in UTF-8"),
        ("[" * 100_000, "nested too deeply"),
        (b"\xff\xfe", "not JSON in UTF-8"),
    ],
)
def test_an_invalid_response_fails_all_calls_of_the_request(
    endpoint: Endpoint, opened: Opened, body: str | bytes, words: str
) -> None:
    endpoint.respond = saying(body)
    answer = opened(endpoint).answer(numbered(2))
    assert len(endpoint.asked) == 1
    for entry in answer:
        assert isinstance(entry, FailedCall)
        assert words in entry.reason


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wait is beyond the time limit, so nothing is tried again."""
    monkeypatch.setattr(module, "FIRST_PAUSE", 1000.0)


@pytest.mark.usefixtures("once")
def test_a_response_that_is_too_large_is_not_read(endpoint: Endpoint, opened: Opened) -> None:
    endpoint.respond = saying("x" * 100_000)
    (results,) = opened(endpoint, bytes="2000").answer(numbered(1))
    assert isinstance(results, FailedCall)
    assert "larger than 2000 bytes" in results.reason


def test_a_large_response_is_read_completely(endpoint: Endpoint, opened: Opened) -> None:
    text = "x" * 300_000
    endpoint.respond = saying(json.dumps({"answers": [{"rows": [[text]]}]}))
    assert opened(endpoint).answer(numbered(1)) == [((text,),)]


@pytest.mark.usefixtures("once")
def test_a_compressed_response_is_read(endpoint: Endpoint, opened: Opened) -> None:
    async def compressed(endpoint: Endpoint, body: dict[str, Any]) -> web.StreamResponse:
        response = web.json_response({"answers": [{"rows": [["x" * 1500]]}]})
        response.enable_compression(web.ContentCoding.gzip)
        return response

    endpoint.respond = compressed
    assert opened(endpoint, bytes="2000").answer(numbered(1)) == [(("x" * 1500,),)]
    (results,) = opened(endpoint, bytes="1024").answer([OperatorCall({"n": (1.0,)})])
    assert isinstance(results, FailedCall)
    assert "larger than 1024 bytes" in results.reason


def test_temporary_failures_are_retried(endpoint: Endpoint, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
    statuses = iter([503, 429, 500])

    async def failing(endpoint: Endpoint, body: dict[str, Any]) -> web.StreamResponse:
        status = next(statuses, None)
        return await doubled(endpoint, body) if status is None else web.Response(status=status)

    endpoint.respond = failing
    assert opened(endpoint).answer(numbered(3)) == twice(3)
    assert len(endpoint.asked) == 4


def test_retry_after_is_honored_within_the_time_limit(endpoint: Endpoint, opened: Opened) -> None:
    endpoint.respond = saying("later", status=503, **{"Retry-After": "3600"})
    assert opened(endpoint, seconds=5.0).answer(numbered(1)) == [
        FailedCall("the service responded with status 503: later")
    ]
    assert len(endpoint.asked) == 1
    waits = iter(["0", "0"])

    async def soon(endpoint: Endpoint, body: dict[str, Any]) -> web.StreamResponse:
        wait = next(waits, None)
        return (
            await doubled(endpoint, body) if wait is None else web.Response(status=429, headers={"Retry-After": wait})
        )

    endpoint.respond = soon
    assert opened(endpoint).answer(numbered(1)) == twice(1)


@pytest.mark.parametrize(("status", "passing"), [(401, True), (404, True), (400, False), (422, False), (302, True)])
def test_other_statuses_are_not_retried(endpoint: Endpoint, opened: Opened, status: int, passing: bool) -> None:
    endpoint.respond = saying("no", status=status, Location=endpoint.url)
    (results,) = opened(endpoint).answer(numbered(1))
    assert isinstance(results, FailedCall)
    assert f"the service responded with status {status}" in results.reason
    assert results.passing is passing
    assert len(endpoint.asked) == 1
    assert ("redirects are not followed" in results.reason) is (status == 302)


def test_a_call_that_the_service_rejects_fails_only_itself(endpoint: Endpoint, opened: Opened) -> None:
    async def picky(endpoint: Endpoint, body: dict[str, Any]) -> web.StreamResponse:
        if any(call["attributes"]["n"] == [5.0] for call in body["asks"]):
            return web.Response(status=422, text="not five")
        return await doubled(endpoint, body)

    endpoint.respond = picky
    answer = opened(endpoint).answer(numbered(16))
    assert answer[5] == FailedCall("the service responded with status 422: not five", passing=False)
    assert [*answer[:5], *answer[6:]] == [*twice(16)[:5], *twice(16)[6:]]


def test_a_slow_service_fails_at_the_time_limit(endpoint: Endpoint, opened: Opened) -> None:
    async def slow(endpoint: Endpoint, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(60 if body["asks"][0]["attributes"]["n"][0] < 2 else 0)
        return await doubled(endpoint, body)

    endpoint.respond = slow
    answer = opened(endpoint, seconds=2.0, concurrency=2, most="2").answer(numbered(4))
    assert answer[2:] == twice(4)[2:]
    for entry in answer[:2]:
        assert isinstance(entry, FailedCall)
        assert entry.passing
        assert "second" in entry.reason


def test_an_unreachable_service_is_a_passing_failure(opened: Opened) -> None:
    with refusing_port() as port:
        service = opened(Endpoint(url=f"http://127.0.0.1:{port}/ask"), seconds=2)
        (results,) = service.answer(numbered(1))
    assert isinstance(results, FailedCall)
    assert results.passing
    assert "cannot connect to the service" in results.reason


def test_an_item_that_is_too_large_fails_only_its_call(
    endpoint: Endpoint, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_REQUEST_BYTES", 1000)
    calls = [*numbered(2), OperatorCall({"n": (2.0,), "text": ("x" * 2000,)}), *numbered(2)]
    answer = opened(endpoint).answer(calls)
    assert answer[2] == FailedCall("the item is larger than 1000 bytes", passing=False)
    assert [*answer[:2], *answer[3:]] == [*twice(2), *twice(2)]


def test_private_addresses_are_refused(endpoint: Endpoint) -> None:
    with pytest.raises(OperatorRefusedError) as caught:
        Service(OperatorContext({"url": endpoint.url}))
    assert caught.value.place == "http, url"
    with pytest.raises(OperatorRefusedError):
        Service(OperatorContext({"url": "ftp://vision.example/"}))
    by_name = Service(OperatorContext({"url": endpoint.url.replace("127.0.0.1", "localhost")}, time_limit=2.0))
    (results,) = by_name.answer(numbered(1))
    by_name.close()
    assert isinstance(results, FailedCall)
    assert "localhost resolves to an address that" in results.reason
    assert endpoint.asked == []


def test_secrets_come_from_files_and_the_environment(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "vision").write_text("s3cret\n")
    (tmp_path / "catalog-url").write_text("postgresql")
    monkeypatch.setenv("RUNNEL_OPERATOR_VISION", "fr0m-outside")
    monkeypatch.setenv("RUNNEL_CATALOG", "postgresql")

    def sent(**settings: str) -> dict[str, str]:
        place = OperatorContext({"url": endpoint.url, **settings}, tmp_path, allowed_addresses=("127.0.0.1",))
        service = Service(place)
        assert service.answer(numbered(1)) == twice(1)
        service.close()
        return endpoint.headers[-1]

    assert sent(secret_file="vision")["authorization"] == "Bearer s3cret"
    assert sent(secret_file="vision", scheme="Token")["authorization"] == "Token s3cret"
    assert sent(secret_variable="RUNNEL_OPERATOR_VISION", header="X-Api-Key")["x-api-key"] == "fr0m-outside"
    for wrong in (
        {"secret_file": "../catalog-url"},
        {"secret_file": "nothing"},
        {"secret_variable": "RUNNEL_CATALOG"},
        {"secret_variable": "PATH"},
        {"secret_variable": "RUNNEL_OPERATOR_NOTHING"},
        {"secret_variable": "RUNNEL_OPERATOR_VISION", "secret_file": "vision"},
        {"secret_file": "vision", "header": "Host"},
        {"secret_file": "vision", "header": "X: y\r\nZ"},
        {"secret": "in-the-statement"},
    ):
        with pytest.raises(OperatorRefusedError):
            sent(**wrong)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(1, 10), st.integers(1, 5))
def test_chunks_keep_the_order_and_the_limits(sizes: list[int], most: int, concurrency: int) -> None:
    runs = split_into_chunks(sizes, most, concurrency)
    assert [place for run in runs for place in range(len(sizes))[run]] == list(range(len(sizes)))
    assert all(0 < len(sizes[run]) <= most for run in runs)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["rows", "error", "passing"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=80)
@given(st.lists(JSON, max_size=4))
def test_any_response_becomes_rows_of_equal_length_or_failures(answers: list[Any]) -> None:
    for answer in read_answers(json.dumps({"answers": answers}).replace("Infinity", "1e999").encode(), len(answers)):
        if not isinstance(answer, FailedCall):
            assert len({len(row) for row in answer}) <= 1
            assert all(isinstance(value, str | float | bool) for row in answer for value in row)
