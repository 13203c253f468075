"""Cache keys of questions. In: operator, inputs and the attributes that the operator reads. Out: 16 bytes.

Two questions with the same key have the same answer if the operator is pure. A key depends on the operator's source,
release and configuration, on the package that the source comes from, on the types of the parameters, and on the
content of the files that the configuration names. It does not depend on the registration's name and version, so an
operator that is registered again unchanged reuses its cached answers.
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
_MAX_CACHED_ITEMS = 4_096
_MAX_DIGESTED_FILE_BYTES = 16 << 20
"""Files up to this size are identified by their content, larger files by size and modification time."""


class Contents:
    """A cache of the attributes that operators read from items, with digests. Questions about an item share them."""

    def __init__(self) -> None:
        self._cache = BoundedCache[int, tuple[Attributes, dict[tuple[str, ...], tuple[Attributes, bytes]]]](
            _MAX_CACHED_ITEMS
        )

    def read(self, attributes: Attributes, reads: tuple[str, ...]) -> tuple[Attributes, bytes]:
        """Return the attributes of an item that an operator reads, and their digest. Empty `reads` means all."""
        # Items are identified by id(). The cache keeps a reference, so no other object can get the same ID.
        entry = self._cache.get(id(attributes))
        if entry is None:
            entry = attributes, {}
            self._cache.put(id(attributes), entry)
        digests = entry[1]
        if reads not in digests:
            selected = {name: attributes[name] for name in reads if name in attributes} if reads else attributes
            digest = hashlib.blake2b(to_bytes(dict(selected)), digest_size=KEY_BYTES, person=_PERSON).digest()
            digests[reads] = (selected, digest)
        return digests[reads]

    def clear(self) -> None:
        """Release all items."""
        self._cache.clear()


class KeyMaker:
    """Computes the cache keys of one operator's questions."""

    def __init__(self, declaration: OperatorDeclaration, folder: Path | None) -> None:
        configuration = dict(declaration.configuration)
        identity = {
            "source": declaration.source,
            "package": release_of(declaration.source),
            "release": declaration.release,
            "parameters": [[parameter.role, parameter.type] for parameter in declaration.parameters],
            "configuration": configuration,
            "files": _file_digests(configuration, folder),
        }
        self._prefix = hashlib.blake2b(to_bytes(identity), digest_size=KEY_BYTES, person=_PERSON)

    def key(self, inputs: tuple[Input, ...], content: bytes) -> bytes:
        """Return the key of a question. `content` is the digest of the attributes that the operator reads."""
        digest = self._prefix.copy()
        digest.update(content)
        digest.update(quick_bytes(inputs))
        return digest.digest()


def quick_bytes(value: object) -> bytes:
    """Return the same bytes as `to_bytes`, but faster for tuples of texts and floats, the usual inputs and answers.

    >>> quick_bytes((("Bronx", 2.0),)), to_bytes((("Bronx", 2.0),))
    (b'[["Bronx",2.0]]', b'[["Bronx",2.0]]')
    """
    quick = _quick_text(value)
    return to_bytes(value) if quick is None else quick.encode("ascii")


def _quick_text(value: object) -> str | None:
    """Return a value as JSON, or None if its type requires the general encoder of `to_bytes`."""
    # Compare exact types: subclasses, such as numpy's numbers, may have a different text form.
    if type(value) is str:
        return encode_basestring_ascii(value)
    if type(value) is float:
        return repr(value) if isfinite(value) else None
    if type(value) is tuple:
        parts = []
        for element in value:
            part = _quick_text(element)
            if part is None:
                return None
            parts.append(part)
        return f"[{','.join(parts)}]"
    return None


def _file_digests(configuration: Mapping[str, str], folder: Path | None) -> dict[str, str]:
    """Return the digests of the files in the folder that a configuration names."""
    digests = {}
    for name, value in configuration.items():
        parts = PurePosixPath(value).parts
        if folder is None or not parts or ".." in parts or parts[0] == "/" or "\0" in value or len(value) > 1024:
            continue
        try:
            path = folder / value
            if not path.is_file():
                continue
            status = path.stat()
            if status.st_size > _MAX_DIGESTED_FILE_BYTES:
                digests[name] = f"{status.st_size} {status.st_mtime_ns}"
            else:
                digests[name] = hashlib.blake2b(path.read_bytes(), digest_size=KEY_BYTES).hexdigest()
        except OSError:
            continue
    return digests
