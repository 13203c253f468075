"""The key of a workspace: a secret can be decrypted only with the same key and purpose, and if it is unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.errors import CorruptDataError
from runnel.workspace_key import WorkspaceKey

KEY = WorkspaceKey(bytes(range(32)))


@given(st.binary(max_size=200), st.text(max_size=20))
def test_sealed_secret_can_be_unsealed(secret: bytes, purpose: str) -> None:
    sealed = KEY.seal(purpose, secret)
    assert KEY.unseal(purpose, sealed) == secret
    assert len(secret) < 8 or secret not in sealed
    assert KEY.seal(purpose, secret) != sealed, "equal secrets have different ciphertexts"


@given(st.binary(max_size=70), st.data())
def test_modified_ciphertext_is_refused(secret: bytes, data: st.DataObject) -> None:
    sealed = bytearray(KEY.seal("signing key 1", secret))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptDataError):
        KEY.unseal("signing key 1", bytes(sealed))


@pytest.mark.parametrize("sealed", [b"", bytes(31), bytes(32), bytes(33)])
def test_short_or_invented_ciphertext_is_refused(sealed: bytes) -> None:
    with pytest.raises(CorruptDataError):
        KEY.unseal("signing key 1", sealed)


def test_secret_is_bound_to_its_key_and_purpose() -> None:
    sealed = KEY.seal("signing key 1", b"secret")
    with pytest.raises(CorruptDataError):
        KEY.unseal("signing key 2", sealed)
    with pytest.raises(CorruptDataError):
        WorkspaceKey.make().unseal("signing key 1", sealed)


def test_key_must_have_32_bytes_and_is_not_in_its_repr() -> None:
    assert KEY.value.hex() not in repr(KEY)
    assert 0 <= KEY.fingerprint < 1 << 62
    for size in (0, 31, 33):
        with pytest.raises(ValueError, match="32 bytes"):
            WorkspaceKey(bytes(size))
