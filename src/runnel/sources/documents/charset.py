"""Decodes bytes to text. The charset comes from the byte order mark, the server, the XML declaration, or is UTF-8.

In: the bytes of a document. Out: its text, or a BrokenDocumentError with the line and column of the first byte that
cannot be decoded. `guess_text` always returns a text. Only charsets that feeds use are allowed; Python's other codecs
(such as punycode) are not used for documents from outside.
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

_SUPERSETS = {"ascii": "utf-8", "gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252"}
"""Charsets that are decoded as a superset. Documents declared as Latin-1 or ASCII are often Windows-1252 or UTF-8."""


def decode_text(data: bytes, name: str, charset: str | None = None) -> str:
    """Decode a document. `charset` is the charset that the server declared, if any.

    >>> decode_text('<?xml version="1.0" encoding="latin1"?><a>é</a>'.encode("latin1"), "a.xml")[-6:]
    '>é</a>'
    >>> decode_text("<a>é</a>".encode("latin1"), "a.xml", "ISO-8859-1")
    '<a>é</a>'
    """
    text = _decode_with(data, charset)
    if text is not None:
        return text
    detected, skip, is_declared = _detect_charset(data)
    try:
        return data[skip:].decode(detected)
    except UnicodeDecodeError as error:
        place = _place(data, skip, error.start, detected, name)
        indication = f"that it is {detected}, but" if is_declared else "no known charset and"
        raise BrokenDocumentError(
            f"the document indicates {indication} contains bytes that are not valid {detected}",
            place=place,
            hint="declare the charset it is really written in, or save it as UTF-8",
        ) from error


def guess_text(data: bytes) -> str:
    """Decode a document with a wrong charset. Some characters may be lost.

    >>> guess_text("<?xml version='1.0' encoding='utf-8'?><a>café</a>".encode("cp1252"))[-8:]
    'café</a>'
    """
    charset, skip, _ = _detect_charset(data)
    text = data[skip:].decode(charset, "replace")
    if charset != "utf-8":
        return text
    lost = text.count("\ufffd")
    # If most non-ASCII bytes are not UTF-8, the text is probably Windows-1252. If only a few are not, it is damaged.
    non_ascii = len(data) - skip - sum(map(len, re.findall(rb"[\x00-\x7f]+", data[skip:])))
    return text if 2 * lost < non_ascii - lost else data[skip:].decode("cp1252", "replace")


def _decode_with(data: bytes, charset: str | None) -> str | None:
    """Decode with the charset that the server declared. Return None if it is unknown or cannot be used."""
    declared = _normalize_charset(charset) if charset else None
    if declared is None or data.startswith(tuple(mark for mark, _ in _MARKS + _UNMARKED)):
        return None
    # Servers often declare a wrong charset. Nearly any bytes are valid Latin-1 or GBK, but other texts are rarely
    # valid UTF-8, so UTF-8 is tried first.
    candidates = (declared,) if declared.startswith("iso2022") else ("utf-8", declared)
    for candidate in candidates:
        try:
            return data.decode(_SUPERSETS.get(candidate, candidate))
        except UnicodeDecodeError:
            continue
    return None


def _normalize_charset(charset: str) -> str | None:
    """Return Python's name of a charset, or None if feeds do not use it."""
    try:
        codec = codecs.lookup(charset.strip(" \"'")).name
    except (LookupError, ValueError):
        return None
    return codec if _FEED_CHARSETS.fullmatch(codec) else None


def _detect_charset(data: bytes) -> tuple[str, int, bool]:
    """Return the charset of a document, the length of its byte order mark, and whether the document declares it."""
    for mark, charset in _MARKS:
        if data.startswith(mark):
            return charset, len(mark), True
    for start, charset in _UNMARKED:
        if data.startswith(start):
            return charset, 0, True
    declared = _DECLARED.match(data)
    codec = None if declared is None else _normalize_charset(declared[1].decode("ascii"))
    if codec is None:
        return "utf-8", 0, False
    return (_latin_charset(data) if codec == "iso8859-1" else _SUPERSETS.get(codec, codec)), 0, True


def _latin_charset(data: bytes) -> str:
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
