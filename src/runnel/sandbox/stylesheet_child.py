"""The sandbox program for stylesheets: checks an XSLT 1.0 stylesheet or applies it to a document.

In: a request (a command, a stylesheet and a document). Out: a reply with the result or an error. Little of Runnel is
imported, so that a new process starts in a fraction of a second.
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
"""The head of a request: the command and the size of the stylesheet. The stylesheet and the document follow."""

REPLY = struct.Struct(">BI")
"""The head of a reply: its kind and a line of the stylesheet (0: none). The result, or message and hint, follow."""

_MAX_CACHED = 8
_MAX_CACHED_BYTES = 64 << 10
_EXTERNAL_ELEMENTS = frozenset({"import", "include"})
_XSLT_1_0 = _EXTERNAL_ELEMENTS | frozenset(
    {"apply-imports", "apply-templates", "attribute", "attribute-set", "call-template", "choose", "comment", "copy"}
    | {"copy-of", "decimal-format", "element", "fallback", "for-each", "if", "key", "message", "namespace-alias"}
    | {"number", "otherwise", "output", "param", "preserve-space", "processing-instruction", "sort", "strip-space"}
    | {"stylesheet", "template", "text", "transform", "value-of", "variable", "when", "with-param"}
)
_NO_EXTERNAL_HINT = "a stylesheet must not refer to other files"
_NOISE = re.compile(
    r"compilation error\b|runtime error\b|unknown error|XPath evaluation returned|Undefined variable\Z|.* refused\Z"
)
# libxslt reports an internal error if it has no memory to create a node, a text or an attribute. If it fails, or
# cannot evaluate a variable, without giving a reason, memory is also the cause, because it reports other reasons.
_OUT_OF_MEMORY = re.compile(
    r"alloc\w* failed|out of memory|internal error\b.*: failed to |\Aruntime error\Z"
    r"|\Afailed to evaluate the expression of \S+ '[^']*'\.\Z",
    re.IGNORECASE | re.DOTALL,
)
_MESSAGES = (
    (
        r"\w+: (read|write) rights for (.*) denied",
        r"the stylesheet must not \1 \2",
        "a stylesheet can use only its document",
    ),
    (r".*infinite template recursion.*", "a template calls itself without end", ""),
    (r".*not a stylesheet.*", "this is not a stylesheet", "the root element must be xsl:stylesheet"),
    (r"Unregistered function.*", "a function is unknown", "functions of XSLT 1.0 and EXSLT can be used"),
    (
        r"Invalid expression; xsl:([\w-]+) : could not compile select expression (.*)",
        r"\2 in xsl:\1 is not valid XPath",
        "",
    ),
)
"""Patterns for messages of the processor, their replacements, and hints."""


class Command(IntEnum):
    """The command of a request."""

    CHECK = 1
    APPLY = 2


class ReplyKind(IntEnum):
    """The result of a request."""

    READY = 1
    FAILED = 2
    XML = 3
    HTML = 4
    TEXT = 5
    LARGE = 6


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply to the parent process."""

    kind: ReplyKind
    data: bytes = b""
    line: int = 0


class StylesheetRefusedError(Exception):
    """A stylesheet or document cannot be used. `line` is a line of the stylesheet, or 0."""

    def __init__(self, message: str, line: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.hint = message, line, hint


@dataclass(frozen=True, slots=True)
class Stylesheet:
    """A compiled stylesheet, and its output method if it declares one."""

    transform: Any
    method: str | None


class _DenyingResolver(etree.Resolver):
    """Denies access to everything that a stylesheet or document refers to.

    The access control of XSLT alone does not prevent xsl:import.
    """

    def resolve(self, system_url: str, public_id: str, context: Any) -> Any:  # type: ignore[override]
        raise StylesheetRefusedError(f"{str(system_url)[:200]!r} must not be read", 0, _NO_EXTERNAL_HINT)


def open_program(megabytes: int, max_output: int) -> Callable[[bytes], bytes]:
    """Return the function that answers requests."""
    _warm_up()
    return StylesheetServer(max_output, (megabytes << 20) // 3).answer


class StylesheetServer:
    """Handles requests, and caches compiled stylesheets. Ends the process if memory is exhausted.

    `max_output` is the maximum size of a result. A failure after touching more than `suspicious_bytes` of memory is
    treated as a lack of memory.
    """

    def __init__(self, max_output: int, suspicious_bytes: int) -> None:
        self._max_output = max_output
        self._suspicious_bytes = suspicious_bytes
        self._stylesheets = BoundedCache[bytes, Stylesheet](_MAX_CACHED)

    def answer(self, request: bytes) -> bytes:
        """Return the reply to a request."""
        command, size = TASK.unpack_from(request)
        stylesheet, document = request[TASK.size : TASK.size + size], request[TASK.size + size :]
        reply = self.serve(Command(command), stylesheet, document)
        return REPLY.pack(reply.kind, reply.line) + reply.data

    def serve(self, command: Command, stylesheet: bytes, document: bytes) -> Reply:
        """Execute a command, and return its reply."""
        touched_before = _touched_bytes()
        try:
            compiled = self._compile(stylesheet)
            match command:
                case Command.CHECK:
                    return Reply(ReplyKind.READY)
                case Command.APPLY:
                    return apply(compiled, parse(document, "document"), self._max_output)
        except Exception as error:
            # Without memory anything may fail, with various messages, so the memory that was touched decides.
            if (
                isinstance(error, MemoryError)
                or _OUT_OF_MEMORY.search(str(error))
                or _touched_bytes() - touched_before > self._suspicious_bytes
            ):
                os._exit(EXHAUSTED)
            if not isinstance(error, StylesheetRefusedError):
                raise
            return Reply(ReplyKind.FAILED, f"{error.message}\0{error.hint}".encode("utf-8", "replace"), error.line)

    def _compile(self, stylesheet: bytes) -> Stylesheet:
        digest = sha256(stylesheet).digest()
        compiled = self._stylesheets.get(digest)
        if compiled is None:
            compiled = compile_stylesheet(stylesheet)
            if len(stylesheet) <= _MAX_CACHED_BYTES:
                self._stylesheets.put(digest, compiled)
        return compiled


def _warm_up() -> None:
    """Load everything that a request may need, because no file can be opened later."""
    stylesheet = f'<x:stylesheet version="1.0" xmlns:x="{XSL}"><x:template match="/">a</x:template></x:stylesheet>'
    server = StylesheetServer(1 << 10, sys.maxsize)
    server.serve(Command.APPLY, stylesheet.encode(), b"<a/>")
    server.serve(Command.CHECK, b"<a", b"")


def _touched_bytes() -> int:
    """Return the bytes of memory that this process has touched, from its minor page faults.

    The peak of getrusage cannot be used, because it starts with the memory of the parent process.
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt * resource.getpagesize()


def parse(data: bytes, role: Literal["stylesheet", "document"]) -> etree._Element:
    """Parse a document that has no DOCTYPE and refers to no other resource."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    parser.resolvers.add(_DenyingResolver())
    try:
        root = etree.fromstring(data, parser, base_url=role)
    except (etree.XMLSyntaxError, ValueError) as error:
        line = (error.position[0] or 0) if isinstance(error, etree.XMLSyntaxError) and role == "stylesheet" else 0
        message = str(getattr(error, "msg", error)).split(", line ")[0][:200]
        raise StylesheetRefusedError(f"the {role} is not well-formed XML: {message}", line) from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise StylesheetRefusedError(f"the {role} has a DOCTYPE, which is not allowed", 1, "remove the DOCTYPE")
    return root


def compile_stylesheet(data: bytes) -> Stylesheet:
    """Check and compile a stylesheet, or raise StylesheetRefusedError."""
    root = parse(data, "stylesheet")
    element: Any
    for element in root.iter(f"{{{XSL}}}*"):
        name = etree.QName(element).localname
        if name not in _XSLT_1_0 - _EXTERNAL_ELEMENTS:
            hint = _NO_EXTERNAL_HINT if name in _EXTERNAL_ELEMENTS else "only XSLT 1.0 is supported"
            raise StylesheetRefusedError(f"xsl:{name[:80]} cannot be used", element.sourceline or 0, hint)
    method: str | None = None
    output: Any
    for output in root.findall(f"{{{XSL}}}output"):
        output.set("encoding", "UTF-8")
        method = output.get("method", method)
        if method not in (None, "xml", "html", "text"):
            raise StylesheetRefusedError(
                f"{method[:40]!r} is not a supported output method", output.sourceline or 0, "use xml, html or text"
            )
    try:
        access_control: Any = etree.XSLTAccessControl
        return Stylesheet(etree.XSLT(root, access_control=access_control.DENY_ALL), method)
    except etree.XSLTError as error:
        raise _explain_error(error.error_log, str(error)) from error


def apply(stylesheet: Stylesheet, document: etree._Element, max_output: int) -> Reply:
    """Apply a stylesheet to a document, and serialize the result with the output method of the stylesheet."""
    try:
        result = stylesheet.transform(document)
        data = bytes(result)
    except (etree.LxmlError, ValueError, TypeError, RecursionError) as error:
        raise _explain_error(stylesheet.transform.error_log, str(error)) from error
    if len(data) > max_output:
        return Reply(ReplyKind.LARGE)
    root = result.getroot()
    match stylesheet.method:
        case "html":
            return Reply(ReplyKind.HTML, data)
        case "text":
            return Reply(ReplyKind.TEXT, data)
        case None if root is not None and isinstance(root.tag, str) and root.tag.lower() == "html":
            return Reply(ReplyKind.HTML, data)  # the default output method (XSLT 1.0 §16)
        case _:
            return Reply(ReplyKind.XML, data)


def _explain_error(log: Any, default: str) -> StylesheetRefusedError:
    """Combine the messages of the processor into one error. It reports line and reason in different entries."""
    messages = [entry.message for entry in log if not _NOISE.match(entry.message)] or [default]
    text = "; ".join(dict.fromkeys(messages))[:400]
    line = next((entry.line for entry in log if entry.line and entry.filename == "stylesheet"), 0)
    for pattern, replacement, hint in _MESSAGES:
        if match := re.fullmatch(pattern, text, re.DOTALL):
            return StylesheetRefusedError(match.expand(replacement), line, hint)
    return StylesheetRefusedError(text, line)
