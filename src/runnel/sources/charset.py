"""Bytes to text: the byte order mark first, then the XML declaration, then UTF-8.

In: the bytes of a document. Out: its text, or BrokenDocument with the line and column of the first byte that
does not belong to the charset. Charsets are those that feeds use; Python's other codecs (punycode, escapes…) are
not for documents from outside.
"""

from __future__ import annotations

import codecs
import re

from runnel.errors import BrokenDocument

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_UNMARKED = ((b"<\0?\0", "utf-16-le"), (b"\0<\0?", "utf-16-be"), (b"<\0", "utf-16-le"), (b"\0<", "utf-16-be"))
_DECLARED = re.compile(rb"""\A\s{0,64}<\?xml\s[^>]{0,200}?encoding\s{0,16}=\s{0,16}["']([A-Za-z0-9._:-]{1,40})["']""")
_FEED_CHARSETS = re.compile(
    r"utf-8|ascii|iso8859-\d{1,2}|cp125[0-8]|cp874|cp866|koi8-[ru]|mac-roman|gb18030|gbk|gb2312|big5(hkscs)?"
    r"|euc_(jp|kr)|shift_jis|cp932|cp949|iso2022_(jp|kr)"
)


def decode_text(data: bytes, name: str) -> str:
    """The text of a document.

    >>> decode_text('<?xml version="1.0" encoding="latin1"?><a>é</a>'.encode("latin1"), "a.xml")[-6:]
    '>é</a>'
    """
    charset, skip, declared = _charset(data)
    try:
        return data[skip:].decode(charset)
    except UnicodeDecodeError as error:
        place = _place(data, skip, error.start, charset, name)
        said = "says that it is" if declared else "should be"
        raise BrokenDocument(
            f"the document {said} {charset}, but it has bytes that are not",
            place=place,
            hint="declare the charset it is really written in, or save it as UTF-8",
        ) from error


def _charset(data: bytes) -> tuple[str, int, bool]:
    """The charset, the bytes of its mark, and whether the document itself names it."""
    for mark, charset in _MARKS:
        if data.startswith(mark):
            return charset, len(mark), True
    for start, charset in _UNMARKED:
        if data.startswith(start):
            return charset, 0, True
    declared = _DECLARED.match(data)
    if declared is None:
        return "utf-8", 0, False
    try:
        charset = codecs.lookup(declared[1].decode("ascii")).name
    except LookupError:
        return "utf-8", 0, False
    if not _FEED_CHARSETS.fullmatch(charset):
        return "utf-8", 0, False
    # What calls itself Latin-1 or ASCII on the web is Windows-1252 or UTF-8, which hold the same and more.
    wider = {"iso8859-1": _latin(data), "ascii": "utf-8", "gb2312": "gb18030", "gbk": "gb18030"}
    return wider.get(charset, charset), 0, True


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
