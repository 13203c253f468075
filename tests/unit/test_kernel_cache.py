"""Compiled kernels are executable code, so they are cached only where no other user can write."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel import kernel_cache
from runnel.kernel_cache import kernel_folder


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create a package without kernels and a user cache, with a umask of 0."""
    (tmp_path / "package" / "__pycache__").mkdir(0o755, parents=True)
    monkeypatch.setattr(kernel_cache, "_PACKAGE", tmp_path / "package")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    kernel_folder.cache_clear()
    before = os.umask(0)
    yield tmp_path / "package"
    os.umask(before)
    kernel_folder.cache_clear()


def _kernel_folder() -> Path | None:
    kernel_folder.cache_clear()
    results = kernel_folder()
    return None if results is None else Path(results)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folder_is_private_regardless_of_the_umask(package: Path, tmp_path: Path) -> None:
    package_cache = _kernel_folder()
    assert package_cache is not None
    assert package_cache.parent == package / "__pycache__"
    assert _mode(package_cache) == 0o700
    assert _kernel_folder() == package_cache, "the folder is reused"
    (package / "__pycache__").chmod(0o777)
    cached = _kernel_folder()
    assert cached is not None
    assert cached.parent == tmp_path / "home" / "cache" / "runnel"
    assert _mode(cached) == 0o700
    for above in cached.parents[:3]:
        assert _mode(above) == 0o755


@pytest.mark.parametrize(("mode", "is_used"), [(0o700, True), (0o755, True), (0o770, False), (0o702, False)])
def test_folder_that_others_can_write_to_is_not_used(package: Path, mode: int, is_used: bool) -> None:
    package_cache = _kernel_folder()
    assert package_cache is not None
    package_cache.chmod(mode)
    assert (_kernel_folder() == package_cache) is is_used


def test_folder_of_another_user_is_not_used(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package_cache = _kernel_folder()
    assert package_cache is not None
    original = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        values = list(original(path))
        values[stat.ST_UID] = os.geteuid() + 1 if path == package_cache else values[stat.ST_UID]
        return os.stat_result(values)

    monkeypatch.setattr(Path, "lstat", lstat)
    results = _kernel_folder()
    assert results is not None
    assert results != package_cache


def test_link_is_not_used_and_without_a_safe_folder_nothing_is_cached(package: Path, tmp_path: Path) -> None:
    package_cache = _kernel_folder()
    assert package_cache is not None
    package_cache.rename(tmp_path / "elsewhere")
    package_cache.symlink_to(tmp_path / "elsewhere")
    cached = _kernel_folder()
    assert cached is not None
    assert cached != package_cache
    cached.parent.chmod(0o777)
    assert _kernel_folder() is None
