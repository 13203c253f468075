"""The program of the sandbox in which stylesheets run.

In: a task (what to do, a stylesheet, a document). Out: what became of it. Nothing else of Runnel is imported here, so
that a fresh process is ready in a fraction of a second.
"""

from __future__ import annotations

import os
import re
import resource
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import Any, Literal

from lxml import etree

from runnel.bounded_cache import BoundedCache
from runnel.sandbox.child_main import EXHAUSTED

XSL = "http://www.w3.org/1999/XSL/Transform"
TASK = struct.Struct(">BI")
"""What to do, and the number of bytes of the stylesheet; then the stylesheet and the document."""

REPLY = struct.Struct(">BI")
"""What became of it, and the stylesheet's line (0: none); then the result, or a message and a hint."""

_KEPT_SHEETS = 8
_KEPT_SHEET_BYTES = 64 << 10
_FOREIGN = frozenset({"import", "include"})
_XSLT_1_0 = _FOREIGN | frozenset(
    {"apply-imports", "apply-templates", "attribute", "attribute-set", "call-template", "choose", "comment", "copy"}
    | {"copy-of", "decimal-format", "element", "fallback", "for-each", "if", "key", "message", "namespace-alias"}
    | {"number", "otherwise", "output", "param", "preserve-space", "processing-instruction", "sort", "strip-space"}
    | {"stylesheet", "template", "text", "transform", "value-of", "variable", "when", "with-param"}
)
_COMPLETE = "a stylesheet must be complete in itself"
_NOISE = re.compile(
    r"compilation error\b|runtime error\b|unknown error|XPath evaluation returned|Undefined variable\Z|.* refused\Z"
)
# libxslt calls it an internal error where it cannot make a node, a text or an attribute: there was no memory for it.
# The same where it fails, or cannot evaluate a variable, and gives no reason: for whatever else is wrong it has one.
_UNALLOCATED = re.compile(
    r"alloc\w* failed|out of memory|internal error\b.*: failed to |\Aruntime error\Z"
    r"|\Afailed to evaluate the expression of \S+ '[^']*'\.\Z",
    re.IGNORECASE | re.DOTALL,
)
_WORDS = (
    (
        r"\w+: (read|write) rights for (.*) denied",
        r"the stylesheet may not \1 \2",
        "it has its document, and nothing else",
    ),
    (r".*infinite template recursion.*", "a template calls itself without end", ""),
    (r".*not a stylesheet.*", "this is not a stylesheet", "the root must be xsl:stylesheet"),
    (r"Unregistered function.*", "a function is not known", "XSLT 1.0 and EXSLT functions are"),
    (r"Invalid expression; xsl:([\w-]+) : could not compile select expression (.*)", r"\2 in xsl:\1 is no XPath", ""),
)
"""What the processor says, what people read, and a hint."""


class Command(IntEnum):
    """What a task asks for."""

    CHECK = 1
    APPLY = 2


class ReplyKind(IntEnum):
    """What became of a task."""

    READY = 1
    FAILED = 2
    XML = 3
    HTML = 4
    TEXT = 5
    LARGE = 6


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to the parent."""

    became: ReplyKind
    data: bytes = b""
    line: int = 0


class StylesheetRefusedError(Exception):
    """A stylesheet or document that cannot be used: message, line of the stylesheet, hint."""

    def __init__(self, message: str, line: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.hint = message, line, hint


@dataclass(frozen=True, slots=True)
class Stylesheet:
    """A compiled stylesheet and its output method, where it names one."""

    transform: Any
    method: str | None


class _Refusing(etree.Resolver):
    """Gives nothing that a stylesheet or document refers to: access control alone does not stop xsl:import."""

    def resolve(self, system_url: str, public_id: str, context: Any) -> Any:  # type: ignore[override]
        raise StylesheetRefusedError(f"{str(system_url)[:200]!r} cannot be read", 0, _COMPLETE)


def open_program(megabytes: int, max_output: int) -> Callable[[bytes], bytes]:
    """The function that answers requests."""
    _warm_up()
    return StylesheetServer(max_output, (megabytes << 20) // 3).answer


class StylesheetServer:
    """Serves tasks one by one, keeping the last stylesheets compiled. Ends the process where memory runs out."""

    def __init__(self, most: int, plenty: int) -> None:
        self._most = most
        self._plenty = plenty
        self._sheets = BoundedCache[bytes, Stylesheet](_KEPT_SHEETS)

    def answer(self, request: bytes) -> bytes:
        """The reply to a request."""
        command, size = TASK.unpack_from(request)
        sheet, document = request[TASK.size : TASK.size + size], request[TASK.size + size :]
        reply = self.serve(Command(command), sheet, document)
        return REPLY.pack(reply.became, reply.line) + reply.data

    def serve(self, do: Command, sheet: bytes, document: bytes) -> Reply:
        """What becomes of a task."""
        before = _touched()
        try:
            compiled = self._compiled(sheet)
            match do:
                case Command.CHECK:
                    return Reply(ReplyKind.READY)
                case Command.APPLY:
                    return apply(compiled, parse(document, "document"), self._most)
        except Exception as error:
            # Without memory anything may fail, in words that differ each time; so what was used is the evidence.
            if (
                isinstance(error, MemoryError)
                or _UNALLOCATED.search(str(error))
                or _touched() - before > self._plenty
            ):
                os._exit(EXHAUSTED)
            if not isinstance(error, StylesheetRefusedError):
                raise
            return Reply(ReplyKind.FAILED, f"{error.message}\0{error.hint}".encode("utf-8", "replace"), error.line)

    def _compiled(self, sheet: bytes) -> Stylesheet:
        digest = sha256(sheet).digest()
        compiled = self._sheets.get(digest)
        if compiled is None:
            compiled = compile_stylesheet(sheet)
            if len(sheet) <= _KEPT_SHEET_BYTES:
                self._sheets.put(digest, compiled)
        return compiled


def _warm_up() -> None:
    """Have everything loaded that a task may need, as no file can be opened later."""
    sheet = f'<x:stylesheet version="1.0" xmlns:x="{XSL}"><x:template match="/">a</x:template></x:stylesheet>'
    workshop = StylesheetServer(1 << 10, sys.maxsize)
    workshop.serve(Command.APPLY, sheet.encode(), b"<a/>")
    workshop.serve(Command.CHECK, b"<a", b"")


def _touched() -> int:
    """The memory that this process has touched, in bytes: pages as they came in.

    Not the peak that getrusage tells: that begins with the memory of the process that started this one.
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * resource.getpagesize()


def parse(data: bytes, what: Literal["stylesheet", "document"]) -> etree._Element:
    """The root of a document that declares nothing and refers to nothing."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    parser.resolvers.add(_Refusing())
    try:
        root = etree.fromstring(data, parser, base_url=what)
    except (etree.XMLSyntaxError, ValueError) as error:
        line = (error.position[0] or 0) if isinstance(error, etree.XMLSyntaxError) and what == "stylesheet" else 0
        message = str(getattr(error, "msg", error)).split(", line ")[0][:200]
        raise StylesheetRefusedError(f"the {what} is not well-formed XML: {message}", line) from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise StylesheetRefusedError(f"the {what} has a DOCTYPE", 1, "remove it")
    return root


def compile_stylesheet(data: bytes) -> Stylesheet:
    """A stylesheet ready to be applied, or Refused."""
    root = parse(data, "stylesheet")
    element: Any
    for element in root.iter(f"{{{XSL}}}*"):
        name = etree.QName(element).localname
        if name not in _XSLT_1_0 - _FOREIGN:
            hint = _COMPLETE if name in _FOREIGN else "XSLT 1.0 is understood"
            raise StylesheetRefusedError(f"xsl:{name[:80]} cannot be used", element.sourceline or 0, hint)
    method: str | None = None
    output: Any
    for output in root.findall(f"{{{XSL}}}output"):
        output.set("encoding", "UTF-8")
        method = output.get("method", method)
        if method not in (None, "xml", "html", "text"):
            raise StylesheetRefusedError(
                f"{method[:40]!r} is not a method of output", output.sourceline or 0, "xml, html or text"
            )
    try:
        denied: Any = etree.XSLTAccessControl
        return Stylesheet(etree.XSLT(root, access_control=denied.DENY_ALL), method)
    except etree.XSLTError as error:
        raise _explained(error.error_log, str(error)) from error


def apply(sheet: Stylesheet, document: etree._Element, most: int) -> Reply:
    """What a stylesheet makes of a document, serialised as it asks."""
    try:
        result = sheet.transform(document)
        data = bytes(result)
    except (etree.LxmlError, ValueError, TypeError, RecursionError) as error:
        raise _explained(sheet.transform.error_log, str(error)) from error
    if len(data) > most:
        return Reply(ReplyKind.LARGE)
    root = result.getroot()
    match sheet.method:
        case "html":
            return Reply(ReplyKind.HTML, data)
        case "text":
            return Reply(ReplyKind.TEXT, data)
        case None if root is not None and isinstance(root.tag, str) and root.tag.lower() == "html":
            return Reply(ReplyKind.HTML, data)  # XSLT 1.0 §16: the method of a sheet that names none.
        case _:
            return Reply(ReplyKind.XML, data)


def _explained(log: Any, otherwise: str) -> StylesheetRefusedError:
    """The processor's complaints as one error: it reports line and reason in different entries."""
    said = [entry.message for entry in log if not _NOISE.match(entry.message)] or [otherwise]
    text = "; ".join(dict.fromkeys(said))[:400]
    line = next((entry.line for entry in log if entry.line and entry.filename == "stylesheet"), 0)
    for pattern, words, hint in _WORDS:
        if found := re.fullmatch(pattern, text, re.DOTALL):
            return StylesheetRefusedError(found.expand(words), line, hint)
    return StylesheetRefusedError(text, line)
