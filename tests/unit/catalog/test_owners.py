"""Owners, quotas, tokens and tickets in the catalog, on every database that can hold one."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from tests import catalog_rows
from tests.services import PostgreSQL, postgresql

from runnel.catalog.access import owners, tokens
from runnel.catalog.access.owners import Owner, OwnerUsage, QuotaAllowance, Quotas
from runnel.catalog.declared import feeds, subscriptions
from runnel.catalog.declared.stylesheets import MAX_BYTES, kept_path, read_stylesheet, stylesheets_in_use
from runnel.catalog.delivery import outbox
from runnel.catalog.store import schema
from runnel.catalog.store.connection import Catalog
from runnel.errors import InputError, NotAllowedError, NotFoundError, QuotaExceededError
from runnel.model.feed import ADMIN, FeedKind
from runnel.model.subscription import INTERNAL
from runnel.settings import Settings
from runnel.testing import FakeClock

__all__ = ["postgresql"]

SETTINGS = Settings.load(Path("/nowhere"), owner_queries=5, owner_subscriptions=4, owner_bytes=1000)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Catalog]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    else:
        server: PostgreSQL = request.getfixturevalue("postgresql")
        url = server.database()
    made = Catalog(url, clock=clock)
    made.migrate()
    yield made
    made.close()


def _owner(catalog: Catalog, name: str = "ann") -> Owner:
    with catalog.write() as connection:
        return owners.add_owner(connection, name)


def _source(catalog: Catalog, name: str, owner: int) -> int:
    with catalog.write() as connection:
        return catalog_rows.add_feed(connection, name, FeedKind.SOURCE, f"register feed {name};", owner=owner)


def _subscribe(catalog: Catalog, feed: int, owner: int, kind: str = "log", ticket: bytes | None = None) -> int:
    with catalog.write() as connection:
        return catalog_rows.add_subscription(
            connection, feed, kind, None, since=0, every=None, lifetime=None, owner=owner, ticket=ticket
        )


# --- owners --------------------------------------------------------------------------------------------------------


def test_admin_exists_and_has_no_quotas(catalog: Catalog) -> None:
    with catalog.read() as connection:
        (operator,) = owners.all_owners(connection)
    assert (operator.id, operator.name, operator.disabled) == (ADMIN, "admin", False)
    assert owners.quotas_of(operator, SETTINGS) == Quotas()


def test_owners_are_added_once_and_found_by_name(catalog: Catalog) -> None:
    ann = _owner(catalog)
    with catalog.write() as connection:
        assert owners.owner_by_name(connection, "ann") == ann == owners.owner_by_id(connection, ann.id)
        for name in ("ann", "admin", "operator"):
            with pytest.raises(InputError, match="already"):
                owners.add_owner(connection, name)
        with pytest.raises(NotFoundError, match="there is no owner bob"):
            owners.owner_by_name(connection, "bob")


def test_admin_is_found_by_the_shown_and_the_stored_name(catalog: Catalog) -> None:
    with catalog.read() as connection:
        assert owners.owner_names(connection) == {ADMIN: "admin"}
        assert owners.owner_by_name(connection, "admin").id == ADMIN
        assert owners.owner_by_name(connection, "operator") == owners.owner_by_name(connection, "admin")


@pytest.mark.parametrize("name", ["", "1a", "a b", "a\n", "a'b", "é", "a" * 65, "../a"])
def test_ambiguous_owner_names_are_refused(catalog: Catalog, name: str) -> None:
    with catalog.write() as connection, pytest.raises(InputError, match="an owner's name"):
        owners.add_owner(connection, name)


def test_name_refers_to_own_feed_before_the_admins(catalog: Catalog) -> None:
    ann, bob = _owner(catalog), _owner(catalog, "bob")
    wire = _source(catalog, "Wire", ADMIN)
    own = _source(catalog, "Wire", ann.id)
    secret = _source(catalog, "Secret", ann.id)
    with catalog.read() as connection:

        def meant(name: str, owner: int) -> int | None:
            feed = feeds.feed_by_name(connection, name, owner)
            return None if feed is None else feed.id

        assert [meant("Wire", value) for value in (ADMIN, ann.id, bob.id)] == [wire, own, wire]
        assert [meant("Secret", value) for value in (ADMIN, ann.id, bob.id)] == [None, secret, None]
        assert feeds.live_names(connection, ann.id) == ["Secret", "Wire"]
        assert feeds.live_names(connection, bob.id) == ["Wire"]
        assert [value.id for value in feeds.live_feeds(connection, bob.id)] == [wire]
        assert [value.id for value in feeds.live_feeds(connection)] == [wire, own, secret]
        assert feeds.readable_names(connection, bob.id) == {wire: "Wire"}
        assert feeds.feed_owners(connection, [wire, own]) == {wire: ADMIN, own: ann.id}


def test_disabling_an_owner_disables_subscriptions_and_sources_until_enabled(catalog: Catalog) -> None:
    ann = _owner(catalog)
    feed = _source(catalog, "Mine", ann.id)
    plain, ended_by_itself = _subscribe(catalog, feed, ann.id), _subscribe(catalog, feed, ann.id)
    others = _subscribe(catalog, feed, ADMIN, "jsonl")
    with catalog.write() as connection:
        gone = subscriptions.subscription_by_number(connection, ended_by_itself)
        assert gone is not None
        subscriptions.disable_subscription(connection, gone, "its endpoint is gone")
        owners.disable_owner(connection, ann, True)
    with catalog.read() as connection:
        assert owners.owner_by_name(connection, "ann").disabled
        results = {
            subscription.id: subscription.disabled for subscription in subscriptions.live_subscriptions(connection)
        }
        assert results == {plain: owners.OWNER_DISABLED, ended_by_itself: "its endpoint is gone", others: None}
        assert [subscription.id for subscription in outbox.sharing(connection)] == [others]
        source = feeds.feed_by_name(connection, "Mine", ann.id)
        assert source is not None
        assert source.paused
    with catalog.write() as connection:
        owners.disable_owner(connection, ann, False)
    with catalog.read() as connection:
        results = {
            subscription.id: subscription.disabled for subscription in subscriptions.live_subscriptions(connection)
        }
        assert results == {plain: None, ended_by_itself: "its endpoint is gone", others: None}
        lagging = [subscription.subscription.id for subscription in outbox.behind(connection, after=0, limit=10)]
        assert lagging == [plain], "it has its own place, so what matched meanwhile is sent"


def test_the_admin_cannot_be_disabled(catalog: Catalog) -> None:
    with catalog.write() as connection, pytest.raises(InputError, match="admin cannot"):
        owners.disable_owner(connection, owners.owner_by_id(connection, ADMIN), True)


# --- quotas --------------------------------------------------------------------------------------------------------


def test_quotas_are_the_settings_unless_set_for_the_owner(catalog: Catalog) -> None:
    ann = _owner(catalog)
    assert owners.quotas_of(ann, SETTINGS) == Quotas(5, 4, 1000)
    with catalog.write() as connection:
        owners.set_quotas(connection, ann, Quotas(queries=0))
        ann = owners.owner_by_name(connection, "ann")
        assert owners.quotas_of(ann, SETTINGS) == Quotas(0, 4, 1000)
        for wrong in (-1, 1 << 62):
            with pytest.raises(InputError, match="a quota must be"):
                owners.set_quotas(connection, ann, Quotas(bytes=wrong))


def test_usage_counts_live_feeds_and_subscriptions_without_internal_ones(catalog: Catalog) -> None:
    ann = _owner(catalog)
    first, second = _source(catalog, "A", ann.id), _source(catalog, "B", ann.id)
    _subscribe(catalog, first, ann.id)
    ended = _subscribe(catalog, first, ann.id)
    _subscribe(catalog, first, ann.id, INTERNAL)
    _subscribe(catalog, first, ADMIN)
    with catalog.write() as connection:
        subscriptions.end_subscription(connection, ended)
        owners.add_bytes(connection, second, 70)
        owners.add_bytes(connection, first, 7)
        feeds.drop_feed(connection, second)
    with catalog.read() as connection:
        assert owners.usage_of(connection, ann.id) == OwnerUsage(1, 1, 77)


def test_bytes_are_refused_before_they_are_counted(catalog: Catalog) -> None:
    ann = _owner(catalog)
    feed, wire = _source(catalog, "A", ann.id), _source(catalog, "Wire", ADMIN)
    with catalog.write() as connection:
        owners.add_bytes(connection, feed, 999, SETTINGS)
        with pytest.raises(
            QuotaExceededError, match="publishing 2 bytes would exceed the quota: 999 of 1,000"
        ) as refused:
            owners.add_bytes(connection, feed, 2, SETTINGS)
        assert "admin" in (refused.value.hint or "")
        owners.add_bytes(connection, feed, 1, SETTINGS)
        owners.add_bytes(connection, wire, 10**9, SETTINGS)
        assert owners.usage_of(connection, ann.id).bytes == 1000
        assert owners.has_byte_quota(connection, feed, SETTINGS)
        assert not owners.has_byte_quota(connection, wire, SETTINGS)
        owners.add_bytes(connection, feed, -400)
        assert owners.usage_of(connection, ann.id).bytes == 600


def test_quota_check_includes_changes_of_its_transaction(catalog: Catalog) -> None:
    ann = _owner(catalog)
    for name in "ABC":
        _source(catalog, name, ann.id)
    with catalog.read() as connection:
        allowance = QuotaAllowance(connection, ann.id, SETTINGS)
        allowance.take("queries")
        allowance.take("queries")
        with pytest.raises(QuotaExceededError, match="the quota of 5 feeds is used up"):
            allowance.take("queries")
        allowance.give_back("queries")
        allowance.take("queries")
        allowance.take("subscriptions")
        unlimited = QuotaAllowance(connection, ADMIN, SETTINGS)
        for _ in range(20):
            unlimited.take("queries")


def test_concurrent_writers_cannot_exceed_a_quota(catalog: Catalog) -> None:
    ann = _owner(catalog)
    refused: list[int] = []

    def declare(number: int) -> None:
        try:
            with catalog.write() as connection:
                QuotaAllowance(connection, ann.id, SETTINGS).take("queries")
                catalog_rows.add_feed(connection, f"F{number}", FeedKind.SOURCE, "s", owner=ann.id)
        except QuotaExceededError:
            refused.append(number)

    threads = [threading.Thread(target=declare, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with catalog.read() as connection:
        assert owners.usage_of(connection, ann.id).queries == 5
    assert len(refused) == 7


# --- tokens and tickets --------------------------------------------------------------------------------------------


def _token(catalog: Catalog, owner: Owner, label: str = "test") -> tuple[int, str]:
    with catalog.write() as connection:
        made, text = tokens.new_token(connection, owner.id, label)
    return made.id, text


def test_token_identifies_its_owner_until_it_is_revoked(catalog: Catalog, clock: FakeClock) -> None:
    ann, bob = _owner(catalog), _owner(catalog, "bob")
    number, text = _token(catalog, ann)
    _, other = _token(catalog, bob)
    assert text.startswith(f"runnel_{number}_")
    assert len(text.removeprefix(f"runnel_{number}_")) == 43
    with catalog.read() as connection:
        assert tokens.verify_token(connection, text) == tokens.VerifiedToken(number, ann.id, fresh=True)
        assert tokens.verify_token(connection, text) == tokens.VerifiedToken(number, ann.id, fresh=False)
        assert tokens.verify_token(connection, other).owner == bob.id
    clock.advance(timedelta(minutes=11))
    with catalog.write() as connection:
        assert tokens.verify_token(connection, text).fresh, "it is held against its hash again"
        tokens.note_use(connection, number)
        tokens.revoke_token(connection, number)
        with pytest.raises(NotAllowedError, match="not valid"):
            tokens.verify_token(connection, text)
        listed = tokens.tokens_of(connection, ann.id)
        assert [(entry.id, entry.label, entry.used is None, entry.revoked is None) for entry in listed] == [
            (number, "test", False, False)
        ]
        assert tokens.verify_token(connection, other).owner == bob.id
        with pytest.raises(NotFoundError, match="there is no token 99"):
            tokens.revoke_token(connection, 99)


def test_unknown_and_known_token_numbers_take_the_same_hashing_work(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for the first token that a process verifies, so the module is loaded afresh."""
    number, text = _token(catalog, _owner(catalog))
    secret = text.split("_", 2)[2]
    spec = importlib.util.spec_from_file_location("fresh_tokens", tokens.__file__)
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fresh_tokens", fresh)
    spec.loader.exec_module(fresh)
    computed: list[str] = []
    hasher = fresh._hasher

    class Counting:
        def hash(self, password: str) -> str:
            computed.append("hash")
            return str(hasher.hash(password))

        def verify(self, kept: str, password: str) -> bool:
            computed.append(kept.rsplit("$", 2)[0])
            return bool(hasher.verify(kept, password))

    monkeypatch.setattr(fresh, "_hasher", Counting())
    costs = []
    with catalog.read() as connection:
        for asked in (f"runnel_{number + 999}_{secret}", f"runnel_{number}_{secret[::-1]}", f"runnel_0_{secret}"):
            computed.clear()
            with pytest.raises(NotAllowedError):
                fresh.verify_token(connection, asked)
            costs.append(list(computed))
    assert costs[0] == costs[1] == costs[2]
    assert len(costs[0]) == 1, "one computation, with the same parameters"


def test_all_invalid_tokens_give_the_same_error(catalog: Catalog) -> None:
    ann, bob = _owner(catalog), _owner(catalog, "bob")
    number, text = _token(catalog, ann)
    other_number, other = _token(catalog, bob)
    secret, other_secret = text.split("_", 2)[2], other.split("_", 2)[2]
    wrong = [
        "",
        "runnel_",
        secret,
        text[:-1],
        text + "x",
        text.upper(),
        f"runnel_999_{secret}",
        f"runnel_{other_number}_{secret}",
        f"runnel_{number}_{other_secret}",
        f"runnel_{number}_{'x' * 5000}",
        f"runnel_{10**30}_{secret}",
        f" {text}",
        f"{text}\n",
        "runnel_1_\ud800" + "x" * 30,
    ]
    messages = set()
    with catalog.read() as connection:
        for value in wrong:
            with pytest.raises(NotAllowedError) as refused:
                tokens.verify_token(connection, value)
            messages.add(str(refused.value))
    assert len(messages) == 1


def test_cached_token_of_a_disabled_owner_is_refused(catalog: Catalog) -> None:
    ann = _owner(catalog)
    _, text = _token(catalog, ann)
    with catalog.write() as connection:
        tokens.verify_token(connection, text)
        owners.disable_owner(connection, ann, True)
        with pytest.raises(NotAllowedError, match="not valid"):
            tokens.verify_token(connection, text)
        owners.disable_owner(connection, ann, False)
        assert tokens.verify_token(connection, text).owner == ann.id


def test_catalog_contains_no_plain_secrets(catalog: Catalog) -> None:
    ann = _owner(catalog)
    _, text = _token(catalog, ann)
    ticket, digest = tokens.new_ticket()
    number = _subscribe(catalog, _source(catalog, "A", ann.id), ann.id, ticket=digest)
    with catalog.read() as connection:
        everything = [
            str(row) for table in schema.metadata.sorted_tables for row in connection.execute(select(table))
        ]
        for secret in (text, text.split("_", 2)[2], ticket):
            assert not any(secret in row for row in everything)
        subscription = subscriptions.subscription_by_ticket(connection, tokens.ticket_digest(ticket))
        assert subscription is not None
        assert subscription.id == number
        assert subscriptions.subscription_by_ticket(connection, tokens.ticket_digest(ticket[:-1])) is None


@pytest.mark.parametrize("label", ["", "  ", "a\nb", "x" * 81, "\x1b[31m"])
def test_labels_are_short_and_printable(catalog: Catalog, label: str) -> None:
    ann = _owner(catalog)
    with catalog.write() as connection, pytest.raises(InputError, match="label"):
        tokens.new_token(connection, ann.id, label)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=80))
def test_ticket_digest_accepts_any_text(text: str) -> None:
    assert len(tokens.ticket_digest(text)) == 32


# --- sheets --------------------------------------------------------------------------------------------------------


def test_stylesheets_are_read_only_from_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "sheets"
    (folder / "mail").mkdir(parents=True)
    (folder / "a.xsl").write_bytes(b"one")
    (folder / "mail" / "b.xsl").write_bytes(b"two")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "link.xsl").symlink_to(tmp_path / "secret")
    (folder / "out").symlink_to(tmp_path)
    (folder / "large.xsl").write_bytes(b"x" * (MAX_BYTES + 1))
    (folder / f"{'a' * 64}.xsl").write_bytes(b"kept")
    assert read_stylesheet(tmp_path, "a.xsl") == b"one"
    assert read_stylesheet(tmp_path, "mail/b.xsl") == read_stylesheet(tmp_path, "./mail//b.xsl") == b"two"
    wrong = ["", ".", "mail", "no.xsl", "a.xsl/x", "../secret", "mail/../../secret", str(tmp_path / "secret")]
    wrong += ["link.xsl", "out/secret", "large.xsl", "file:///etc/passwd", "a\0.xsl", f"{'a' * 64}.xsl", "x" * 5000]
    for name in wrong:
        with pytest.raises(InputError, match="stylesheet"):
            read_stylesheet(tmp_path, name)


def test_missing_stylesheet_folder_error_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read") as refused:
        read_stylesheet(tmp_path, "a.xsl")
    assert "sheets" in (refused.value.hint or "")


def test_stylesheets_in_use_belong_to_live_feeds_and_subscriptions(catalog: Catalog) -> None:
    used, ended = kept_path(b"used"), kept_path(b"ended")
    assert used != ended
    with catalog.write() as connection:
        origin = catalog_rows.add_feed(connection, "A", FeedKind.SOURCE, "s")
        catalog_rows.add_feed(connection, "B", FeedKind.SOURCE, "s", origin=origin, sheet=used)
        gone = catalog_rows.add_feed(connection, "C", FeedKind.SOURCE, "s", origin=origin, sheet=ended)
        assert feeds.materialised_from(connection, [origin]) == {origin + 1, gone}
        feeds.drop_feed(connection, gone)
    with catalog.read() as connection:
        assert stylesheets_in_use(connection) == {used}
        assert feeds.origins(connection) == {origin + 1: origin}
