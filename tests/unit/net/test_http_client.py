"""The door: where it goes, where it does not, and what it brings back."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from aiohttp import web
from tests.unit.net.servers import Handler, ScriptedNames, Talk, door, saying, serving, talking

from runnel.errors import InputError, RefusedAddressError, UnreachableError
from runnel.net.http_client import MAX_REDIRECTS, HttpClient, HttpResponse, http_client_of
from runnel.settings import Settings

PEM = Path(__file__).parent / "self_signed.pem"


def redirect(status: int, to: str | Callable[[], str]) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": to if isinstance(to, str) else to()})

    return handler


async def plain(request: web.Request) -> web.Response:
    return web.Response(text=f"{request.method} {request.path_qs}", headers={"ETag": '"1"'})


async def echo(request: web.Request) -> web.Response:
    return web.json_response({name.lower(): value for name, value in request.headers.items()})


async def fetched(handlers: dict[str, Handler], path: str, **more: str) -> HttpResponse:
    async with serving(handlers) as base, door() as out:
        return await out.get(base + path, headers=more)


def test_get_returns_status_headers_and_body() -> None:
    answer = asyncio.run(fetched({"/rss": plain}, "/rss?a=1"))
    assert (answer.status, answer.body, answer.moved) == (200, b"GET /rss?a=1", None)
    assert answer.headers["etag"] == answer.headers["ETag"] == '"1"'
    assert answer.url.endswith("/rss?a=1")


def test_request_has_user_agent_and_accepted_encodings() -> None:
    sent = asyncio.run(fetched({"/": echo}, "/")).body
    assert b'"user-agent": "Runnel/test"' in sent
    assert b'"accept-encoding": "gzip, deflate"' in sent


@pytest.mark.parametrize("status", [204, 304, 404, 410, 429, 500, 503])
def test_error_statuses_are_returned_as_responses(status: int) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Retry-After": "7"})

    answer = asyncio.run(fetched({"/": handler}, "/"))
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (status, b"", "7")


def test_repeated_list_headers_are_joined_and_of_others_the_first_is_used() -> None:
    data = b"HTTP/1.1 200 OK\r\nLink: <a>\r\nETag: 1\r\nLink: <b>\r\nETag: 2\r\nX: \xff\r\nContent-Length: 0\r\n\r\n"

    async def scenario() -> HttpResponse:
        async with talking(saying(data)) as port, door() as out:
            return await out.get(f"http://127.0.0.1:{port}/")

    headers = asyncio.run(scenario()).headers
    assert (headers["link"], headers["etag"], headers["x"]) == ("<a>, <b>", "1", "\ufffd")


def test_leading_permanent_redirects_set_the_moved_url() -> None:
    handlers = {"/a": redirect(301, "/b"), "/b": redirect(308, "c?x=1#top"), "/c": plain}
    answer = asyncio.run(fetched(handlers, "/a"))
    assert answer.body == b"GET /c?x=1"
    assert answer.moved == answer.url
    assert answer.url.endswith("/c?x=1")


@pytest.mark.parametrize(("first", "second", "moved"), [(301, 302, "/b"), (302, 301, None), (307, 308, None)])
def test_temporary_redirect_sets_no_moved_url(first: int, second: int, moved: str | None) -> None:
    answer = asyncio.run(fetched({"/a": redirect(first, "/b"), "/b": redirect(second, "/c"), "/c": plain}, "/a"))
    assert answer.url.endswith("/c")
    assert (answer.moved or "").removeprefix(answer.url.removesuffix("/c")) == (moved or "")


def test_a_redirect_that_ends_in_not_modified_keeps_its_validators() -> None:
    async def unchanged(request: web.Request) -> web.Response:
        return web.Response(status=304 if request.headers.get("If-None-Match") == '"1"' else 200)

    answer = asyncio.run(fetched({"/a": redirect(301, "/b"), "/b": unchanged}, "/a", **{"If-None-Match": '"1"'}))
    assert answer.status == 304
    assert answer.moved is not None


@pytest.mark.parametrize(
    ("handlers", "words"),
    [
        ({"/0": redirect(302, "/0")}, "redirects in a loop"),
        ({"/0": redirect(302, "/1"), "/1": redirect(302, "/0")}, "redirects in a loop"),
        ({f"/{n}": redirect(302, f"/{n + 1}") for n in range(9)}, f"more than {MAX_REDIRECTS}"),
        ({"/0": redirect(302, "http://me:pw@muse.example/")}, "name or password"),
        ({"/0": redirect(302, "file:///etc/passwd")}, "begin with http"),
        ({"/0": redirect(302, "http://muse.example:25/")}, "port 25"),
        ({"/0": redirect(302, "http://256.256.256.256/")}, "not a valid URL"),
        ({"/0": redirect(302, "http://[")}, "redirects to an invalid URL"),
        ({"/0": redirect(302, "")}, "without a Location header"),
    ],
)
def test_invalid_redirects_raise_errors(handlers: dict[str, Handler], words: str) -> None:
    with pytest.raises(UnreachableError, match=words) as caught:
        asyncio.run(fetched(handlers, "/0"))
    assert "pw" not in str(caught.value)


def test_maximum_number_of_redirects_is_followed() -> None:
    handlers = {f"/{n}": redirect(302, f"/{n + 1}") for n in range(MAX_REDIRECTS)} | {f"/{MAX_REDIRECTS}": plain}
    assert asyncio.run(fetched(handlers, "/0")).status == 200


INWARDS = ["http://127.0.0.2:{port}/", "http://0x7f.2:{port}/", "http://[::ffff:127.0.0.2]:{port}/"]
INWARDS += ["http://2130706434:{port}/", "http://inward.example:{port}/", "http://both.example:{port}/"]


@pytest.mark.parametrize("to", INWARDS)
@pytest.mark.parametrize("direct", [True, False])
def test_private_addresses_are_refused_without_connecting(to: str, direct: bool) -> None:
    connections: list[object] = []

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer.get_extra_info("peername"))

    async def scenario() -> None:
        names = ScriptedNames({"inward.example": [["127.0.0.2"]], "both.example": [["127.0.0.2", "::1"]]})
        async with talking(count, "127.0.0.2") as port, door(resolver=names) as out:
            target = to.format(port=port)
            async with serving({"/": redirect(302, target)}) as base:
                await out.get(target if direct else base)

    with pytest.raises(RefusedAddressError) as caught:
        asyncio.run(scenario())
    assert connections == []
    assert caught.value.hint
    assert "allowed_addresses" in caught.value.hint


def test_address_is_checked_again_when_the_socket_connects() -> None:
    connections: list[object] = []

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)

    async def scenario() -> None:
        names = ScriptedNames({"rebinding.example": [["127.0.0.1"], ["127.0.0.2"]]})
        async with talking(count, "127.0.0.2") as port, door(resolver=names) as out:
            inner = f"http://rebinding.example:{port}/"
            async with serving({"/": plain, "/on": redirect(302, inner)}) as base:
                outer = base.replace("127.0.0.1", "rebinding.example")
                assert (await out.get(outer)).status == 200
                with pytest.raises(RefusedAddressError, match="the local machine") as caught:
                    await out.get(outer + "/on")
                assert "127.0.0.2" not in str(caught.value), "inner addresses are not told to strangers"
        assert names.asked == ["rebinding.example"] * 2

    asyncio.run(scenario())
    assert connections == []


def test_public_address_is_used_if_the_name_also_has_a_refused_one() -> None:
    async def scenario() -> int:
        names = ScriptedNames({"two.example": [["127.0.0.2", "127.0.0.1"]]})
        async with serving({"/": plain}) as base, door(resolver=names) as out:
            return (await out.get(base.replace("127.0.0.1", "two.example"))).status

    assert asyncio.run(scenario()) == 200


def test_an_allowed_host_may_be_reached_under_its_own_name_only() -> None:
    async def scenario() -> None:
        names = ScriptedNames({"intranet.example": [["127.0.0.1"]], "evil.example": [["127.0.0.1"]]})
        async with serving({"/": plain}) as base, door(allowed=["intranet.example"], resolver=names) as out:
            assert (await out.get(base.replace("127.0.0.1", "intranet.example"))).status == 200
            for other in (base.replace("127.0.0.1", "evil.example"), base):
                with pytest.raises(RefusedAddressError):
                    await out.get(other)

    asyncio.run(scenario())


def test_system_names_are_resolved_and_checked() -> None:
    async def scenario() -> None:
        async with serving({"/": plain}) as base, door(allowed=()) as shut, door(allowed=("127.0.0.1",)) as out:
            local = base.replace("127.0.0.1", "localhost")
            assert (await out.get(local)).status == 200
            with pytest.raises(RefusedAddressError, match="localhost resolves to an address"):
                await shut.get(local)

    asyncio.run(scenario())


def test_secret_headers_are_not_sent_to_another_origin() -> None:
    sent = {"Authorization": "Bearer secret", "X-Key": "secret", "Cookie": "secret", "If-None-Match": '"1"'}

    async def scenario() -> tuple[HttpResponse, HttpResponse]:
        async with serving({"/": echo, "/same": redirect(302, "/")}) as other:
            handlers = {"/there": redirect(302, other), "/here": redirect(302, "/"), "/": echo}
            async with serving(handlers) as base, door() as out:
                return await out.get(base + "/there", headers=sent), await out.get(base + "/here", headers=sent)

    there, here = asyncio.run(scenario())
    assert b"secret" not in there.body
    assert b"if-none-match" in there.body
    assert here.body.count(b"secret") == 3


def test_cookies_are_not_stored() -> None:
    async def cookie(request: web.Request) -> web.Response:
        return web.Response(text=request.headers.get("Cookie", "none"), headers={"Set-Cookie": "a=1"})

    async def scenario() -> list[bytes]:
        async with serving({"/": cookie}) as base, door() as out:
            return [(await out.get(base)).body for _ in range(2)]

    assert asyncio.run(scenario()) == [b"none", b"none"]


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert asyncio.run(fetched({"/": plain}, "/")).status == 200


def _tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    return context


def test_certificates_are_verified() -> None:
    async def scenario() -> None:
        async with talking(saying(b"HTTP/1.1 200 OK\r\n\r\n"), ssl=_tls()) as port, door() as out:
            await out.get(f"https://127.0.0.1:{port}/")

    with pytest.raises(UnreachableError, match="certificate is not valid: self"):
        asyncio.run(scenario())


def test_a_redirect_from_https_to_http_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    trusting = ssl.create_default_context(cafile=str(PEM))
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusting)

    async def scenario() -> None:
        async with serving({"/": plain}) as base:
            head = f"HTTP/1.1 301 Moved\r\nLocation: {base}/\r\nContent-Length: 0\r\n\r\n".encode()
            async with talking(saying(head), ssl=_tls()) as port, door() as out:
                await out.get(f"https://127.0.0.1:{port}/")

    with pytest.raises(UnreachableError, match="redirects from https to http"):
        asyncio.run(scenario())


def test_post_sends_once_and_does_not_follow_redirects() -> None:
    taken: list[bytes] = []

    async def take(request: web.Request) -> web.Response:
        taken.append(await request.read())
        return web.Response(status=int(request.query["status"]), headers={"Location": "/"}, text="thanks")

    async def scenario() -> None:
        async with serving({"/": take}) as base, door() as out:
            for status in (200, 301, 302, 307, 308, 410, 500):
                answer = await out.post(f"{base}/?status={status}", b"message", headers={"X-Key": "k"})
                assert (answer.status, answer.body, answer.moved) == (status, b"thanks", None)
        assert taken == [b"message"] * 7

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "talk",
    [
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n" + b"a" * 900_000),
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
        saying(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
        saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"zzz\r\n", pause=0.05),
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", pause=30),
    ],
    ids=["large", "cut", "not gzip", "not chunked", "never comes"],
)
def test_post_succeeds_if_only_the_body_fails_after_the_status(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.net.http_client.COURTESY_SECONDS", 0.2)

    async def scenario() -> HttpResponse:
        async with talking(talk) as port, door() as out:
            return await out.post(f"http://127.0.0.1:{port}/", b"message", headers={}, max_bytes=1000)

    answer = asyncio.run(scenario())
    assert answer.status == 200
    assert len(answer.body) <= 1000


@pytest.mark.parametrize("url", ["http://127.0.0.2/", "http://10.1.2.3/hook", "http://[::1]/", "ftp://a.example/"])
def test_post_is_checked_like_get(url: str) -> None:
    async def scenario() -> None:
        async with door() as out:
            await out.post(url, b"", headers={})

    with pytest.raises(InputError):
        asyncio.run(scenario())


def test_requests_per_host_are_limited_and_waiting_does_not_count_as_time() -> None:
    under_way = 0
    most = 0

    async def slow(request: web.Request) -> web.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.2)
        under_way -= 1
        return web.Response()

    async def scenario() -> None:
        async with serving({"/": slow}) as base, door(host_concurrency=2, seconds=2.0) as out:
            # All of them, two by two, take longer than one may: those who wait are not counted as slow.
            answers = await asyncio.gather(*(out.get(base) for _ in range(24)))
            assert [answer.status for answer in answers] == [200] * 24

    asyncio.run(scenario())
    assert most == 2


def test_waiting_for_one_host_does_not_delay_another() -> None:
    release = asyncio.Event()

    async def stuck(request: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    async def scenario() -> None:
        names = ScriptedNames({"slow.example": [["127.0.0.1"]], "fast.example": [["127.0.0.1"]]})
        async with (
            serving({"/": plain, "/stuck": stuck}) as base,
            door(resolver=names, concurrency=2, host_concurrency=1) as out,
        ):
            slow = base.replace("127.0.0.1", "slow.example") + "/stuck"
            waiting = [asyncio.create_task(out.get(slow)) for _ in range(5)]
            await asyncio.sleep(0.05)
            assert (await out.get(base.replace("127.0.0.1", "fast.example"))).status == 200
            release.set()
            assert [answer.status for answer in await asyncio.gather(*waiting)] == [200] * 5

    asyncio.run(scenario())


def test_canceled_wait_releases_its_slot() -> None:
    async def scenario() -> int:
        never = saying(b"", pause=60)
        async with talking(never) as port, serving({"/": plain}) as base, door(concurrency=1) as out:
            held = asyncio.create_task(out.get(f"http://127.0.0.1:{port}/"))
            waiting = asyncio.create_task(out.get(base))
            await asyncio.sleep(0.05)
            for task in (waiting, held):
                task.cancel()
            await asyncio.gather(waiting, held, return_exceptions=True)
            return (await out.get(base)).status

    assert asyncio.run(scenario()) == 200


def test_client_used_outside_async_with_raises() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(door().get("http://127.0.0.1:8080/"))


def test_client_is_created_from_settings(tmp_path: Path) -> None:
    settings = Settings.load(tmp_path, allowed_addresses=("127.0.0.1",), user_agent="Me/1", max_document_bytes=10)

    async def scenario(out: HttpClient) -> None:
        async with serving({"/": echo}) as base, out:
            with pytest.raises(UnreachableError, match="larger than 10 bytes"):
                await out.get(base)
            assert b"Me/1" in (await out.get(base, max_bytes=1000)).body

    job: Coroutine[None, None, None] = scenario(http_client_of(settings))
    asyncio.run(job)
