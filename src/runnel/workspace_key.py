"""The key of a workspace: it seals the secrets in the catalog, and signs backups.

In: a secret that Runnel must use again, such as the signing key of a webhook. Out: its sealed form, which tells
nothing without the key and cannot be moved to another row. The key itself is in a file of its own, see
runnel.storage.key_file.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from hashlib import sha256

from runnel.errors import CorruptDataError

_KEY_BYTES = 32
_NONCE_BYTES = 16
_MARK_BYTES = 16
_BLOCK = sha256().digest_size


@dataclass(frozen=True, slots=True)
class WorkspaceKey:
    """32 random bytes. Each purpose uses a key that is derived from them."""

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.value) != _KEY_BYTES:
            raise ValueError(f"a key has {_KEY_BYTES} bytes")

    @staticmethod
    def make() -> WorkspaceKey:
        """A key that nobody else has."""
        return WorkspaceKey(secrets.token_bytes(_KEY_BYTES))

    @property
    def fingerprint(self) -> int:
        """A number that identifies the key and tells nothing about it: 62 bits, which every database can hold."""
        return int.from_bytes(self._digest("fingerprint", b"")[:8], "big") >> 2

    def seal(self, purpose: str, secret: bytes) -> bytes:
        """Encrypt a secret for one purpose, such as `signing key 12`.

        >>> key = WorkspaceKey.make()
        >>> key.unseal("signing key 12", key.seal("signing key 12", b"secret"))
        b'secret'
        """
        nonce = secrets.token_bytes(_NONCE_BYTES)
        hidden = self._encrypted(nonce, secret)
        return nonce + hidden + self._mark(purpose, nonce + hidden)

    def unseal(self, purpose: str, sealed: bytes) -> bytes:
        """The secret; CorruptDataError if it was sealed with another key, for another purpose, or is damaged."""
        rest, mark = sealed[:-_MARK_BYTES], sealed[-_MARK_BYTES:]
        if len(rest) < _NONCE_BYTES or not hmac.compare_digest(mark, self._mark(purpose, rest)):
            raise CorruptDataError(
                f"a secret in the catalog ({purpose}) was not sealed with the key of this workspace",
                hint="restore the workspace from a backup",
            )
        return self._encrypted(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:])

    def sign(self, data: bytes) -> str:
        """A signature that only a holder of the key can make."""
        return self._digest("signature", data).hex()

    def _encrypted(self, nonce: bytes, data: bytes) -> bytes:
        """The data combined with a stream of pseudorandom bytes; the same again gives the data back.

        HMAC in counter mode, and a mark over its result (encrypt, then authenticate). No cipher is needed for secrets
        this small, and Python's own library has none.
        """
        blocks = range(-(-len(data) // _BLOCK))
        stream = b"".join(self._digest("encryption", nonce + number.to_bytes(8, "big")) for number in blocks)
        return bytes(one ^ other for one, other in zip(data, stream, strict=False))

    def _mark(self, purpose: str, data: bytes) -> bytes:
        name = purpose.encode()
        return self._digest("authentication", len(name).to_bytes(4, "big") + name + data)[:_MARK_BYTES]

    def _digest(self, use: str, data: bytes) -> bytes:
        derived = hmac.digest(self.value, f"runnel {use}".encode(), "sha256")
        return hmac.digest(derived, data, "sha256")
