"""Stylesheets in real sandboxes: what they may do, and how they are stopped."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lxml import etree

from runnel.errors import RunnelError, StylesheetError
from runnel.sandbox import stylesheet_child
from runnel.sandbox.stylesheet_process import (
    MAX_STYLESHEET,
    StylesheetTransformer,
    TransformedDocument,
    transformer_of,
)
from runnel.settings import Settings

SPACES = (
    'xmlns:xsl="http://www.w3.org/1999/XSL/Transform" xmlns:exsl="http://exslt.org/common" '
    'xmlns:saxon="http://icl.com/saxon" xmlns:redirect="org.apache.xalan.xslt.extensions.Redirect" '
    'xmlns:re="http://exslt.org/regular-expressions" extension-element-prefixes="exsl saxon redirect" '
    'exclude-result-prefixes="exsl saxon redirect re"'
)
NODES = b"<a>" + b"<n>1</n>" * 400 + b"</a>"


def sheet(*lines: str, template: str | None = None) -> bytes:
    """Return a stylesheet whose lines start at line 2."""
    body = [*lines] if template is None else [*lines, f'<xsl:template match="/">{template}</xsl:template>']
    return "\n".join([f'<xsl:stylesheet version="1.0" {SPACES}>', *body, "</xsl:stylesheet>"]).encode()


GOOD = sheet('<xsl:output method="text"/>', template='<xsl:value-of select="count(//n)"/> nodes')


def nested(inside: str, times: int = 3) -> str:
    return '<xsl:for-each select="//n">' * times + inside + "</xsl:for-each>" * times


@pytest.fixture(scope="module")
def transformer() -> Iterator[StylesheetTransformer]:
    with StylesheetTransformer(seconds=1.0, megabytes=192, max_output=4 << 20, children=2) as transformer:
        yield transformer


def still_works(transformer: StylesheetTransformer) -> None:
    assert transformer.apply(GOOD, NODES, "good.xsl").data == b"400 nodes"


@pytest.mark.parametrize(
    ("stylesheet", "media_type", "data"),
    [
        (GOOD, "text/plain", b"400 nodes"),
        (sheet('<xsl:output method="html"/>', template="<p><br/></p>"), "text/html", b"<p><br></p>\n"),
        (sheet(template="<html><br/></html>"), "text/html", b"<html><br></html>\n"),
        (sheet(template="<rss/>"), "application/xml", b'<?xml version="1.0"?>\n<rss/>\n'),
        (
            sheet('<xsl:output encoding="iso-8859-1" omit-xml-declaration="yes"/>', template="<a>é€</a>"),
            "application/xml",
            "<a>é€</a>\n".encode(),
        ),
        (sheet('<xsl:output method="text" encoding="utf-16"/>', template="é"), "text/plain", "é".encode()),
        (sheet(template=""), "application/xml", b""),
        (
            sheet(
                '<xsl:output method="text"/>', template="<xsl:value-of select=\"re:replace('abc', 'b', '', 'x')\"/>"
            ),
            "text/plain",
            b"axc",
        ),
    ],
)
def test_output_methods_and_encodings(
    transformer: StylesheetTransformer, stylesheet: bytes, media_type: str, data: bytes
) -> None:
    result = transformer.apply(stylesheet, NODES, "made.xsl")
    assert result.media_type == f"{media_type}; charset=utf-8"
    assert result.data == data


@pytest.mark.parametrize("kind", ["import", "include"])
@pytest.mark.parametrize("of", ["{path}", "file://{path}", "http://127.0.0.1:9/a.xsl", "other.xsl", ""])
def test_other_stylesheets_are_not_read(
    transformer: StylesheetTransformer, tmp_path: Path, kind: str, of: str
) -> None:
    other = tmp_path / "other.xsl"
    other.write_bytes(sheet(template="LEAK"))
    importing = sheet(f'<xsl:{kind} href="{of.format(path=other)}"/>')
    for act in (
        lambda: transformer.check(importing, "made.xsl"),
        lambda: transformer.apply(importing, NODES, "made.xsl"),
    ):
        with pytest.raises(StylesheetError, match="must not refer to other files") as caught:
            act()
        assert caught.value.place == "made.xsl:2"


def test_resolver_alone_prevents_imports(tmp_path: Path) -> None:
    # Usually the check of element names rejects an import first.
    other = tmp_path / "other.xsl"
    other.write_bytes(sheet(template="LEAK"))
    root = stylesheet_child.parse(sheet(f'<xsl:import href="{other}"/>'), "stylesheet")
    with pytest.raises(stylesheet_child.StylesheetRefusedError, match="must not be read"):
        etree.XSLT(root)


@pytest.mark.parametrize("of", ["{path}", "file://{path}", "http://127.0.0.1:9/a.xml", "", "/proc/self/environ"])
def test_document_function_reads_nothing(transformer: StylesheetTransformer, tmp_path: Path, of: str) -> None:
    other = tmp_path / "other.xml"
    other.write_text("<secret>LEAK</secret>")
    reading = sheet(template=f"<o><xsl:copy-of select=\"document('{of.format(path=other)}')\"/></o>")
    with pytest.raises(StylesheetError, match="must not read"):
        transformer.apply(reading, NODES, "made.xsl")


@pytest.mark.parametrize(
    "element",
    [
        '<exsl:document href="{path}"><a/></exsl:document>',
        '<saxon:output href="{path}"><a/></saxon:output>',
        "<redirect:write select=\"'{path}'\"><a/></redirect:write>",
        '<xsl:document href="{path}"><a/></xsl:document>',
    ],
)
def test_stylesheets_write_no_files(transformer: StylesheetTransformer, tmp_path: Path, element: str) -> None:
    target = tmp_path / "out.xml"
    with pytest.raises(StylesheetError, match=r"must not write|cannot be used"):
        transformer.apply(sheet(template=element.format(path=target)), NODES, "made.xsl")
    assert not target.exists()


@pytest.mark.parametrize(
    ("stylesheet", "document", "words", "place"),
    [
        (b"<a", NODES, "stylesheet is not well-formed", "made.xsl:1"),
        (b"\xff\xfe", NODES, "stylesheet is not well-formed", None),
        (b"", NODES, "stylesheet is not well-formed", None),
        (b"<a/>", NODES, "not a stylesheet", "made.xsl:1"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]>' + GOOD, NODES, "stylesheet has a DOCTYPE", None),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd">' + GOOD, NODES, "stylesheet has a DOCTYPE", None),
        (GOOD, b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "document has a DOCTYPE", None),
        (GOOD, b'<!DOCTYPE a [<!ENTITY b SYSTEM "/etc/passwd">]><a>&b;</a>', "document has a DOCTYPE", None),
        (GOOD, b"<a><b></a>", "document is not well-formed", "made.xsl"),
        (sheet("", '<xsl:template match="[["/>'), NODES, "[[", "made.xsl:3"),
        (sheet("", template='\n<xsl:value-of select="a[["/>'), NODES, "is not valid XPath", "made.xsl:4"),
        (sheet("", template='\n<xsl:value-of select="nothing()"/>'), NODES, "function is unknown", "made.xsl:4"),
        (sheet("", template='\n<xsl:value-of select="$nothing"/>'), NODES, "has not been declared", "made.xsl:4"),
        (sheet("", template="\n<xsl:for-each-group/>"), NODES, "XSLT 1.0", "made.xsl:4"),
        (sheet('<xsl:output method="pdf"/>'), NODES, "xml, html or text", "made.xsl:2"),
        (sheet(template='<xsl:message terminate="yes">no concert</xsl:message>'), NODES, "no concert", None),
    ],
)
def test_errors_are_explained_with_their_line(
    transformer: StylesheetTransformer, stylesheet: bytes, document: bytes, words: str, place: str | None
) -> None:
    with pytest.raises(StylesheetError) as caught:
        transformer.apply(stylesheet, document, "made.xsl")
    assert words in str(caught.value)
    assert caught.value.place == (place or caught.value.place)
    still_works(transformer)


def test_check_accepts_the_same_stylesheets_as_apply(transformer: StylesheetTransformer) -> None:
    transformer.check(GOOD, "good.xsl")
    with pytest.raises(StylesheetError, match="not a stylesheet"):
        transformer.check(b"<a/>", "bad.xsl")
    with pytest.raises(StylesheetError, match=f"more than {MAX_STYLESHEET} bytes"):
        transformer.check(b" " * (MAX_STYLESHEET + 1), "large.xsl")


DOUBLING = (
    '<xsl:template match="/"><xsl:call-template name="d"><xsl:with-param name="s" select="\'aaaaaaaa\'"/>'
    '</xsl:call-template></xsl:template><xsl:template name="d"><xsl:param name="s"/><xsl:call-template name="d">'
    '<xsl:with-param name="s" select="concat($s, $s)"/></xsl:call-template></xsl:template>'
)
ENDLESS = '<xsl:template match="/" name="e"><xsl:call-template name="e"/></xsl:template>'
TIME = r"stopped: it took more than [12] seconds"
STOPPED = rf"{TIME}|stopped: it took too much memory"
HOSTILE_STYLESHEETS = {
    "triple loop": (sheet(template=nested('<p a="b">some text</p>')), STOPPED),
    "triple count": (
        sheet(template='<xsl:value-of select="count(//n[count(//n[count(//n[count(//n) = 1]) = 1]) = 1])"/>'),
        TIME,
    ),
    "regular expression": (
        sheet(template=f"<xsl:value-of select=\"re:test('{'a' * 50}b', '(a+)+$')\"/>"),
        TIME,
    ),
    "doubling": (sheet(DOUBLING), "memory"),
    "text": (sheet('<xsl:output method="text"/>', template=nested("x" * 200)), STOPPED),
    "recursion": (sheet(ENDLESS), "without end"),
    "output": (
        sheet('<xsl:output method="text"/>', template=nested("x" * 50, 2)),
        "output of the stylesheet has more than",
    ),
    "messages": (sheet(template=nested(f"<xsl:message>{'x' * 500}</xsl:message>")), STOPPED),
}


@pytest.mark.parametrize("name", HOSTILE_STYLESHEETS)
def test_hostile_stylesheets_are_stopped_and_the_next_call_works(
    transformer: StylesheetTransformer, name: str
) -> None:
    stylesheet, words = HOSTILE_STYLESHEETS[name]
    with pytest.raises(StylesheetError, match=words) as caught:
        transformer.apply(stylesheet, NODES, f"{name}.xsl")
    assert str(caught.value.place).startswith(f"{name}.xsl")
    still_works(transformer)


def test_cpu_time_is_limited_independently_of_wall_clock_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.sandbox.stylesheet_process.WALL_CLOCK_FACTOR", 1000)
    with StylesheetTransformer(seconds=0.3, megabytes=192, children=1) as transformer:
        with pytest.raises(StylesheetError, match=r"more than 0\.3 seconds of CPU time"):
            transformer.apply(HOSTILE_STYLESHEETS["triple count"][0], NODES, "count.xsl")
        still_works(transformer)


def _children() -> set[int]:
    return {int(name) for path in Path("/proc/self/task").glob("*/children") for name in path.read_text().split()}


def test_one_child_serves_many_documents() -> None:
    others = _children()
    with StylesheetTransformer(seconds=5.0, megabytes=192, children=1) as transformer:
        still_works(transformer)
        before = _children() - others
        assert len(before) == 1
        for number in range(100):
            assert (
                transformer.apply(GOOD, b"<a>" + b"<n/>" * number + b"</a>", "good.xsl").data == b"%d nodes" % number
            )
        assert _children() - others == before
    assert not _children() & before


def test_children_inherit_no_secrets_and_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNEL_SMTP_PASSWORD", "secret")
    others = _children()
    read, write = os.pipe()
    os.set_inheritable(read, False)
    with StylesheetTransformer(seconds=5.0, megabytes=192, children=1) as transformer:
        still_works(transformer)
        (child,) = _children() - others
        assert b"secret" not in Path(f"/proc/{child}/environ").read_bytes()
        opened = {entry.name: str(entry.readlink()) for entry in Path(f"/proc/{child}/fd").iterdir()}
        assert set(opened) == {"0", "1", "2", "3"}
        limits = Path(f"/proc/{child}/limits").read_text()
        assert "Max open files            4                    4" in limits
        assert "Max file size             0                    0" in limits
    os.close(read)
    os.close(write)


def test_killed_child_is_replaced_without_an_error() -> None:
    others = _children()
    with StylesheetTransformer(seconds=5.0, megabytes=192, children=1) as transformer:
        still_works(transformer)
        (child,) = _children() - others
        os.kill(child, signal.SIGKILL)
        still_works(transformer)
        (successor,) = _children() - others
        assert successor != child
        assert not Path(f"/proc/{child}").exists()


def test_sleeping_child_is_ended_at_the_wall_clock_limit() -> None:
    others = _children()
    with StylesheetTransformer(seconds=0.5, megabytes=192, children=1) as transformer:
        still_works(transformer)
        (child,) = _children() - others
        os.kill(child, signal.SIGSTOP)
        with pytest.raises(StylesheetError, match="more than 1 seconds"):
            transformer.apply(GOOD, NODES, "good.xsl")
        still_works(transformer)


def test_crash_of_the_processor_affects_one_document() -> None:
    others = _children()
    with (
        StylesheetTransformer(seconds=20.0, megabytes=192, children=1) as transformer,
        ThreadPoolExecutor(1) as threads,
    ):
        still_works(transformer)
        victim = threads.submit(transformer.apply, HOSTILE_STYLESHEETS["triple count"][0], NODES, "long.xsl")
        killed: set[int] = set()
        # After a crash, the document is tried again in a new child. It fails only if that crashes, too.
        while not victim.done():
            for child in _children() - others - killed:
                time.sleep(0.5)
                os.kill(child, signal.SIGSEGV)
                killed.add(child)
            time.sleep(0.01)
        with pytest.raises(StylesheetError, match="the stylesheet processor crashed"):
            victim.result()
        assert len(killed) == 2
        still_works(transformer)


def test_concurrent_calls_get_their_own_results(transformer: StylesheetTransformer) -> None:
    def transform(number: int) -> TransformedDocument | str:
        document = b"<a>" + b"<n/>" * number + b"</a>"
        if number % 10 == 7:
            with pytest.raises(StylesheetError, match="memory"):
                transformer.apply(HOSTILE_STYLESHEETS["doubling"][0], document, "bomb.xsl")
            return "stopped"
        return transformer.apply(GOOD, document, "good.xsl")

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(transform, range(40)))
    for number, result in enumerate(results):
        expected = (
            "stopped" if number % 10 == 7 else TransformedDocument("text/plain; charset=utf-8", b"%d nodes" % number)
        )
        assert result == expected


def test_closing_ends_busy_sandboxes() -> None:
    others = _children()
    transformer = StylesheetTransformer(seconds=60.0, megabytes=192, children=1)
    failures: list[RunnelError] = []

    def work() -> None:
        with pytest.raises(RunnelError, match="closed") as caught:
            transformer.apply(HOSTILE_STYLESHEETS["triple count"][0], NODES, "long.xsl")
        failures.append(caught.value)

    worker = threading.Thread(target=work)
    worker.start()
    while not _children() - others:
        time.sleep(0.01)
    time.sleep(0.3)
    transformer.close()
    worker.join(30)
    (failure,) = failures
    assert not isinstance(failure, StylesheetError), "stopping the runner must not make a dead letter of the message"
    assert _children() <= others
    with pytest.raises(RunnelError, match="closed"):
        transformer.apply(GOOD, NODES, "good.xsl")


def test_transformer_has_the_limits_of_the_settings(tmp_path: Path) -> None:
    with transformer_of(Settings.load(tmp_path, max_document_bytes=5)) as transformer:
        with pytest.raises(StylesheetError, match="more than 5 bytes"):
            transformer.apply(GOOD, NODES, "good.xsl")
        assert transformer.apply(sheet(template=""), NODES, "empty.xsl").data == b""


def test_process_that_cannot_start_is_not_a_stylesheet_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("/nowhere/python", "/bin/false"):
        monkeypatch.setattr("sys.executable", program)
        with StylesheetTransformer(seconds=1.0, megabytes=192) as transformer:
            with pytest.raises(RunnelError, match="cannot start") as caught:
                transformer.apply(GOOD, NODES, "good.xsl")
            assert not isinstance(caught.value, StylesheetError)
