"""Bytes to text: the byte order mark first, then what the server said, then the XML declaration, then UTF-8.

In: the bytes of a document. Out: its text, or BrokenDocument with the line and column of the first byte that does not
belong to the charset; `guess_text` gives a text in any case. Charsets are those that feeds use; Python's other codecs
(punycode, escapes…) are not for documents from outside.
"""

from __future__ import annotations

import codecs
import re

from runnel.errors import BrokenDocumentError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_UNMARKED = (
    (b"<\0\0\0", "utf-32-le"),
    (b"\0\0\0<", "utf-32-be"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)
_DECLARED = re.compile(rb"""\A\s{0,64}<\?xml\s[^>]{0,200}?encoding\s{0,16}=\s{0,16}["']([A-Za-z0-9._:-]{1,40})["']""")
_FEED_CHARSETS = re.compile(
    r"utf-8|ascii|iso8859-\d{1,2}|cp125[0-8]|cp874|cp866|koi8-[ru]|mac-roman|gb18030|gbk|gb2312|big5(hkscs)?"
    r"|euc_(jp|kr)|shift_jis|cp932|cp949|iso2022_(jp|kr)"
)

_WIDER = {"ascii": "utf-8", "gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252"}
"""What calls itself Latin-1 or ASCII on the web is Windows-1252 or UTF-8, which hold the same and more."""


def decode_text(data: bytes, name: str, charset: str | None = None) -> str:
    """The text of a document; `charset` is what the server said that it is written in.

    >>> decode_text('<?xml version="1.0" encoding="latin1"?><a>é</a>'.encode("latin1"), "a.xml")[-6:]
    '>é</a>'
    >>> decode_text("<a>é</a>".encode("latin1"), "a.xml", "ISO-8859-1")
    '<a>é</a>'
    """
    given = _given(data, charset)
    if given is not None:
        return given
    found, skip, declared = _charset(data)
    try:
        return data[skip:].decode(found)
    except UnicodeDecodeError as error:
        place = _place(data, skip, error.start, found, name)
        said = "says that it is" if declared else "should be"
        raise BrokenDocumentError(
            f"the document {said} {found}, but it has bytes that are not",
            place=place,
            hint="declare the charset it is really written in, or save it as UTF-8",
        ) from error


def guess_text(data: bytes) -> str:
    """The text of a document whose charset is wrong: some of its characters may be lost.

    >>> guess_text("<?xml version='1.0' encoding='utf-8'?><a>café</a>".encode("cp1252"))[-8:]
    'café</a>'
    """
    charset, skip, _ = _charset(data)
    text = data[skip:].decode(charset, "replace")
    if charset != "utf-8":
        return text
    lost = text.count("\ufffd")
    # What says UTF-8 and hardly is, was written by a Windows machine; a few bytes too many are damage.
    beyond = len(data) - skip - sum(map(len, re.findall(rb"[\x00-\x7f]+", data[skip:])))
    return text if 2 * lost < beyond - lost else data[skip:].decode("cp1252", "replace")


def _given(data: bytes, charset: str | None) -> str | None:
    """The text in the charset that the server named, where that can be; servers often name one that they guessed."""
    named = _known(charset) if charset else None
    if named is None or data.startswith(tuple(mark for mark, _ in _MARKS + _UNMARKED)):
        return None
    # Nearly any bytes are Latin-1 or GBK, while hardly any but UTF-8 are UTF-8.
    candidates = (named,) if named.startswith("iso2022") else ("utf-8", named)
    for candidate in candidates:
        try:
            return data.decode(_WIDER.get(candidate, candidate))
        except UnicodeDecodeError:
            continue
    return None


def _known(charset: str) -> str | None:
    """Python's name of a charset that feeds use; None for any other codec."""
    try:
        found = codecs.lookup(charset.strip(" \"'")).name
    except (LookupError, ValueError):
        return None
    return found if _FEED_CHARSETS.fullmatch(found) else None


def _charset(data: bytes) -> tuple[str, int, bool]:
    """The charset, the bytes of its mark, and whether the document itself names it."""
    for mark, charset in _MARKS:
        if data.startswith(mark):
            return charset, len(mark), True
    for start, charset in _UNMARKED:
        if data.startswith(start):
            return charset, 0, True
    declared = _DECLARED.match(data)
    known = None if declared is None else _known(declared[1].decode("ascii"))
    if known is None:
        return "utf-8", 0, False
    return (_latin(data) if known == "iso8859-1" else _WIDER.get(known, known)), 0, True


def _latin(data: bytes) -> str:
    try:
        data.decode("cp1252")
    except UnicodeDecodeError:
        return "iso8859-1"
    return "cp1252"


def _place(data: bytes, skip: int, offset: int, charset: str, name: str) -> str:
    before = data[skip : skip + offset].decode(charset, "replace")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return f"{name}:{line}:{column}"
