"""The figures for metrics are correct, and reading them is inexpensive in a large catalog."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Connection, event, insert, text

from runnel.catalog.delivery.delivery_health import open_work
from runnel.catalog.store import schema
from runnel.catalog.store.connection import Catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog(f"sqlite:///{tmp_path / 'catalog.sqlite'}", clock=lambda: 1000.0)
    catalog.migrate()
    return catalog


def _fill(connection: Connection) -> None:
    message = {
        "first_sequence": 1,
        "last_sequence": 2,
        "items": 1,
        "digest": "",
        "plan": 1,
        "attempts": 1,
        "created": 1,
    }
    states = ["done"] * 500 + ["open"] * 3 + ["dead"] * 2
    connection.execute(
        insert(schema.messages),
        [
            message | {"subscription": 1, "number": n, "key": str(n), "state": state, "not_before": 0}
            for n, state in enumerate(states)
        ],
    )
    poll = {"address": "https://news.example/", "due": 0, "requests": 1, "unchanged": 0}
    connection.execute(
        insert(schema.polls),
        [
            poll | {"feed": 1, "failures": 0, "stopped": None},
            poll | {"feed": 2, "failures": 4, "stopped": None},
            poll | {"feed": 3, "failures": 1, "stopped": "gone"},
        ],
    )
    file = {"size": 1, "modified": 1, "digest": "", "checked": 1}
    connection.execute(
        insert(schema.source_files),
        [
            file | {"feed": 4, "path": "a", "problem": "broken"},
            file | {"feed": 4, "path": "b", "problem": "broken"},
            file | {"feed": 5, "path": "c", "problem": None},
        ],
    )


def test_unfinished_work_is_counted(catalog: Catalog) -> None:
    with catalog.write() as connection:
        _fill(connection)
    with catalog.read() as connection:
        work = open_work(connection)
    assert (work.messages_open, work.messages_dead) == (3, 2)
    assert (work.feeds_failing, work.feeds_stopped) == (2, 1)
    assert (work.subscriptions_disabled, work.quarantine_last, work.batch_committed) == (0, 0, None)


def test_reading_figures_scans_no_table(catalog: Catalog) -> None:
    asked: list[tuple[str, object]] = []
    with catalog.read() as connection:
        event.listen(
            connection,
            "before_cursor_execute",
            lambda _c, _k, statement, parameters, *_: asked.append((statement, parameters)),
        )
        open_work(connection)
    assert len(asked) == 8
    with catalog.read() as connection:
        for statement, parameters in asked:
            steps = connection.exec_driver_sql(f"explain query plan {statement}", parameters).all()  # type: ignore[arg-type]
            scans = [step[3] for step in steps if step[3].startswith("SCAN") and "INDEX" not in step[3]]
            assert not scans, (statement, scans)
    with catalog.read() as connection:
        assert connection.execute(text("select 1")).scalar() == 1
