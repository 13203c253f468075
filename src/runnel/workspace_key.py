"""The key of a workspace: it seals the secrets in the catalog, and signs backups.

In: a secret that Runnel must use again, such as the signing key of a webhook. Out: its sealed form, which tells
nothing without the key and cannot be moved to another row. The key itself is in a file of its own, see
runnel.storage.key_file.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from runnel.errors import CorruptDataError

_KEY_BYTES = 32
_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class WorkspaceKey:
    """32 random bytes. Each purpose uses a key that is derived from them."""

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.value) != _KEY_BYTES:
            raise ValueError(f"a key must have {_KEY_BYTES} bytes")

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
        return nonce + self._cipher().encrypt(nonce, secret, purpose.encode())

    def unseal(self, purpose: str, sealed: bytes) -> bytes:
        """The secret; CorruptDataError if it was sealed with another key, for another purpose, or is damaged."""
        nonce, hidden = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher().decrypt(nonce, hidden, purpose.encode())
        except (InvalidTag, ValueError) as error:
            raise CorruptDataError(
                f"a secret in the catalog ({purpose}) was not encrypted with the key of this workspace",
                hint="restore the workspace from a backup",
            ) from error

    def sign(self, data: bytes) -> str:
        """A signature that only a holder of the key can make."""
        return self._digest("signature", data).hex()

    def _cipher(self) -> AESGCM:
        return AESGCM(self._digest("encryption", b""))

    def _digest(self, use: str, data: bytes) -> bytes:
        derived = hmac.digest(self.value, f"runnel {use}".encode(), "sha256")
        return hmac.digest(derived, data, "sha256")
