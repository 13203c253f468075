"""The identity of a question: operator, inputs and what is read of the item in, 16 bytes out.

Two questions of one key have one answer, as long as the operator is pure. The name and version of the registration
are no part of a key: an operator that is registered again with the same source, release and configuration finds what
it answered before. What counts besides them is the package that the source comes from, the types of the parameters,
and the content of the files that the configuration names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from math import isfinite
from pathlib import Path, PurePosixPath

from runnel.bounded_cache import BoundedCache
from runnel.matching.operators.plugins.contract import Input
from runnel.matching.operators.plugins.encoding import to_bytes
from runnel.matching.operators.plugins.registry import release_of
from runnel.model.item import Attributes
from runnel.model.operator import OperatorDeclaration

KEY_BYTES = 16
_PERSON = b"runnel ask/1"
_KEPT_CONTENTS = 4_096
_READ_WHOLE = 16 << 20
"""Files up to this size count by their content, larger ones by size and time."""


class Contents:
    """The attributes that operators read of items, and their digests: questions about one item share them."""

    def __init__(self) -> None:
        self._known = BoundedCache[int, tuple[Attributes, dict[tuple[str, ...], tuple[Attributes, bytes]]]](
            _KEPT_CONTENTS
        )

    def read(self, attributes: Attributes, reads: tuple[str, ...]) -> tuple[Attributes, bytes]:
        """The attributes that an operator reads (all, where `reads` names none), and their digest."""
        # By identity: the mapping is kept here, so that no other one can come to have its number.
        known = self._known.get(id(attributes))
        if known is None:
            known = attributes, {}
            self._known.put(id(attributes), known)
        digests = known[1]
        if reads not in digests:
            seen = {name: attributes[name] for name in reads if name in attributes} if reads else attributes
            digest = hashlib.blake2b(to_bytes(dict(seen)), digest_size=KEY_BYTES, person=_PERSON).digest()
            digests[reads] = (seen, digest)
        return digests[reads]

    def forget(self) -> None:
        """Release all items."""
        self._known.clear()


class KeyMaker:
    """Makes the keys of one operator's questions."""

    def __init__(self, declaration: OperatorDeclaration, folder: Path | None) -> None:
        configuration = dict(declaration.configuration)
        told = {
            "source": declaration.source,
            "package": release_of(declaration.source),
            "release": declaration.release,
            "parameters": [[one.role, one.type] for one in declaration.parameters],
            "configuration": configuration,
            "files": _file_digests(configuration, folder),
        }
        self._begun = hashlib.blake2b(to_bytes(told), digest_size=KEY_BYTES, person=_PERSON)

    def key(self, inputs: tuple[Input, ...], content: bytes) -> bytes:
        """The key of a question."""
        digest = self._begun.copy()
        digest.update(content)
        digest.update(quick_bytes(inputs))
        return digest.digest()


def quick_bytes(value: object) -> bytes:
    """The same as `to_bytes`, sooner for texts, numbers and tuples of them, which most inputs and answers are.

    >>> quick_bytes((("Bronx", 2.0),)), to_bytes((("Bronx", 2.0),))
    (b'[["Bronx",2.0]]', b'[["Bronx",2.0]]')
    """
    quick = _quick_text(value)
    return to_bytes(value) if quick is None else quick.encode("ascii")


def _quick_text(value: object) -> str | None:
    """JSON without a general encoder, which is made anew for every value; None for what is left to that."""
    # By exact type: subclasses, such as numpy's numbers, have forms of their own.
    if type(value) is str:
        return encode_basestring_ascii(value)
    if type(value) is float:
        return repr(value) if isfinite(value) else None
    if type(value) is tuple:
        parts = []
        for one in value:
            part = _quick_text(one)
            if part is None:
                return None
            parts.append(part)
        return f"[{','.join(parts)}]"
    return None


def _file_digests(configuration: Mapping[str, str], folder: Path | None) -> dict[str, str]:
    """Digests of the files below the folder that a configuration names."""
    found = {}
    for name, value in configuration.items():
        parts = PurePosixPath(value).parts
        if folder is None or not parts or ".." in parts or parts[0] == "/" or "\0" in value or len(value) > 1024:
            continue
        try:
            path = folder / value
            if not path.is_file():
                continue
            status = path.stat()
            if status.st_size > _READ_WHOLE:
                found[name] = f"{status.st_size} {status.st_mtime_ns}"
            else:
                found[name] = hashlib.blake2b(path.read_bytes(), digest_size=KEY_BYTES).hexdigest()
        except OSError:
            continue
    return found
