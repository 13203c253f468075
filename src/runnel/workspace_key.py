"""The key of a workspace, which encrypts the secrets in the catalog and signs backups.

In: a secret that Runnel must use again, such as the signing key of a webhook. Out: its encrypted form, which is bound
to its purpose, so that it cannot be moved to another row. The key is stored in a file, see runnel.storage.key_file.
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
    """32 random bytes. Encryption, signatures and fingerprints use different keys that are derived from them."""

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.value) != _KEY_BYTES:
            raise ValueError(f"a key must have {_KEY_BYTES} bytes")

    @staticmethod
    def make() -> WorkspaceKey:
        """Create a random key."""
        return WorkspaceKey(secrets.token_bytes(_KEY_BYTES))

    @property
    def fingerprint(self) -> int:
        """A number of 62 bits that identifies the key without revealing it, and that every database can store."""
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
        """Decrypt a secret. Raise CorruptDataError if the key or the purpose differs, or if it is damaged."""
        nonce, ciphertext = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher().decrypt(nonce, ciphertext, purpose.encode())
        except (InvalidTag, ValueError) as error:
            raise CorruptDataError(
                f"a secret in the catalog ({purpose}) cannot be decrypted with the key of this workspace",
                hint="restore the workspace from a backup",
            ) from error

    def sign(self, data: bytes) -> str:
        """Return a signature (HMAC) of the data, which cannot be created without the key."""
        return self._digest("signature", data).hex()

    def _cipher(self) -> AESGCM:
        return AESGCM(self._digest("encryption", b""))

    def _digest(self, use: str, data: bytes) -> bytes:
        derived = hmac.digest(self.value, f"runnel {use}".encode(), "sha256")
        return hmac.digest(derived, data, "sha256")
