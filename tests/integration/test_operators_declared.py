"""Registering, using, replacing and dropping operators, in the transactions of one catalog."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import runnel
from runnel.algebra.nodes.query import Filter
from runnel.catalog.declared import feeds, operators
from runnel.catalog.logs import plan_versions
from runnel.cli.main import app
from runnel.engine import Engine
from runnel.errors import NotAllowedError, StatementError, StillNeededError, UnknownNameError

MODULE = """
import json, os
from datetime import timedelta
from pathlib import Path
from runnel.errors import OperatorRefusedError
from runnel.model.operator import Parameter

Path(__file__).with_name("imported").write_text(json.dumps({"process": os.getpid(), "names": sorted(os.environ)}))

def mob_pattern(attributes):
    return [len(value) for value in attributes.get("title", ())]

def holds(attributes):
    return True

class Near:
    parameters = (Parameter("place", "input", "text"), Parameter("metres", "result", "number"))
    cost = timedelta(milliseconds=3)
    pure = False
    batch = 5
    reads = ("lat", "lon")

    def __init__(self, place):
        pass

    def answer(self, asks):
        return [((1.0,),) for _ in asks]

class Choosy:
    def __init__(self, place):
        if place.configuration.get("model") != "small":
            raise OperatorRefusedError("there is no such model", place="choosy, model", hint="small is there")
        if place.folder.name != "operators" or place.name != "choosy" or place.time_limit != 3.0:
            raise ValueError(f"this is no place: {place}")

    def answer(self, asks):
        raise AssertionError("nobody asks while it is registered")
"""
REGISTER = "register operator mob(?people int) from 'city_vision:mob_pattern' cost 40 ms;"
MOBS = "create feed Mobs from Wire where title contains 'square' and mob(?n) and ?n > 50;"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of operators, which creates a file when it is imported."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "city_vision.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("city_vision", None)


@pytest.fixture
def engine(tmp_path: Path, modules: Path) -> Iterator[Engine]:
    with runnel.connect(tmp_path / "root", operator_modules=("city_vision",)) as opened:
        opened.execute("register feed Wire;")
        yield opened


def error_of(engine: Engine, text: str, kind: type[StatementError] = StatementError) -> StatementError:
    with pytest.raises(kind) as caught:
        engine.execute(text)
    assert caught.value.span is not None
    return caught.value


def versions(engine: Engine, name: str) -> set[int]:
    """Return the versions of the operators that a stored feed uses."""
    with engine.workspace.catalog.read() as connection:
        feed = feeds.feed_by_name(connection, name)
        assert feed is not None
        node = operators.current_nodes(connection, [feed.id])[feed.id]
    assert isinstance(node, Filter)
    return {call.version for call in operators.calls_in(node)}


def test_feed_stores_the_version_of_its_operator(engine: Engine) -> None:
    outcomes = engine.execute(REGISTER + MOBS)
    assert [outcome.message for outcome in outcomes] == ["registered operator mob", "created feed Mobs"]
    assert outcomes[0].to_json()["signature"] == "mob(?people int)"
    assert versions(engine, "Mobs") == {1}
    shown = engine.show("Mobs").to_json()["statement"]
    assert shown == "create feed Mobs from Wire where title contains 'square' and mob(?n) and ?n > 50;"


def test_class_attributes_are_defaults_of_a_registration(engine: Engine) -> None:
    engine.execute(
        "register operator near from 'city_vision:Near'; register operator holds from 'city_vision:holds';"
    )
    near, holds = (engine.execute(f"show operator {name};")[0].to_json() for name in ("near", "holds"))
    assert near["signature"] == "near(place text, ?metres number)"
    assert (near["cost"], near["pure"], near["reads"]) == ("3 ms", False, ["lat", "lon"])
    assert (holds["signature"], holds["cost"], holds["pure"]) == ("holds()", "1 ms", True)
    engine.execute("register operator near(?far number, there text) from 'city_vision:Near' pure cost 2 seconds;")
    near = engine.execute("show operator near;")[0].to_json()
    assert (near["signature"], near["cost"], near["pure"]) == ("near(?far number, there text)", "2 seconds", True)
    error = error_of(engine, "register operator near(there text) from 'city_vision:Near';")
    assert "parameters do not match" in error.message
    assert "(place text, ?metres number)" in (error.hint or "")


def test_shown_statement_registers_the_same_operator(engine: Engine) -> None:
    engine.execute(
        "register operator near from 'city_vision:Near' with (a 'it''s') on error retry for 3 hours limit 1500 us "
        "budget 100 calls per minute release '2';"
    )
    first = engine.execute("show operator near;")[0].to_json()
    engine.execute(first["statement"])
    again = engine.execute("show operator near;")[0].to_json()
    assert again == first | {"version": 2}


def test_modules_that_are_not_allowed_are_not_imported(tmp_path: Path, modules: Path) -> None:
    with runnel.connect(tmp_path / "strict") as engine:
        error = error_of(engine, "register operator mob from 'city_vision:mob_pattern';")
        assert "city_vision" in error.message
        assert "operator_modules" in (error.hint or "")
        assert error_of(engine, "register operator x from 'os:system';")
        assert error_of(engine, "register operator x from 'city_vision.evil:f';")
    assert not (modules / "imported").exists()
    with runnel.connect(tmp_path / "strict", operator_modules=("city",)) as engine:
        assert error_of(engine, "register operator mob from 'city_vision:mob_pattern';")
        assert not (modules / "imported").exists(), "city allows city.vision, not city_vision"


def test_missing_modules_and_names_are_refused(engine: Engine) -> None:
    error = error_of(engine, "register operator m from 'city_vision:mob_patern';")
    assert "does not define mob_patern" in error.message
    assert "did you mean" in (error_of(engine, "register operator m from 'distanse';").hint or "")
    engine.execute("register operator far from 'distance';")
    assert engine.show("operators").to_json()["operators"][0]["signature"] == "far(place text, ?metres number)"


def test_registering_does_not_import_the_plug_in_in_this_process(
    engine: Engine, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNEL_CATALOG_PASSWORD", "s3cret")
    engine.execute(REGISTER)
    document = json.loads((modules / "imported").read_text())
    assert document["process"] != os.getpid()
    assert "PATH" in document["names"]
    assert "RUNNEL_CATALOG_PASSWORD" not in document["names"]
    assert "city_vision" not in sys.modules


def test_configuration_of_a_plug_in_is_checked_in_a_sandbox(engine: Engine) -> None:
    error = error_of(engine, "register operator choosy()\n  from 'city_vision:Choosy' with (model 'large');")
    assert error.message == "choosy, model: there is no such model"
    assert error.hint == "small is there"
    assert error.span is not None
    assert error.span.line == 2
    engine.execute("register operator choosy() from 'city_vision:Choosy' limit 3 seconds with (model 'small');")
    error = error_of(engine, "register operator other() from 'city_vision:Choosy' with (model 'small');")
    assert "this is no place" in error.message
    assert [operator["name"] for operator in engine.show("operators").to_json()["operators"]] == ["choosy"]


@pytest.mark.parametrize(
    ("registration", "message", "hint"),
    [
        ("a(region text) from 'region' with (regions 'gone.geojson')", "region, regions: ", "root/operators"),
        ("a(region text) from 'region' with (nonsense 'x', regions 'city.geojson')", "nonsense", "regions"),
        ("a() from 'http' with (url 'https://vision.example:99/mobs')", "http, url: port 99", "443"),
        ("a(k text) from 'lookup' with (database 'crm', table 't', key 'k')", "no database 'crm'", "market"),
        ("a(k text) from 'lookup' with (database 'market', table 'none', key 'k')", "no table 'none'", "with (…)"),
        (
            "a(k text) from 'lookup' with (database 'away', table 't', key 'k')",
            "read from the database away",
            "running",
        ),
        ("a() from 'rules' with (rules 'holds :- ')", "rules, rules, line 1: ", "with (…)"),
    ],
)
def test_invalid_configuration_of_a_built_in_operator_is_refused(
    tmp_path: Path, registration: str, message: str, hint: str
) -> None:
    with sqlite3.connect(tmp_path / "market.sqlite") as connection:
        connection.execute("create table t (k text)")
    connection.close()
    away = "postgresql://runnel:s3cret@127.0.0.1:9/market"
    databases = {"market": f"sqlite:///{tmp_path}/market.sqlite", "away": away}
    with runnel.connect(tmp_path / "root", operator_databases=databases) as engine:
        error = error_of(engine, f"register feed Wire; register operator {registration};")
        assert message in error.message
        assert hint in (error.hint or "")
        assert "s3cret" not in str(error)
        assert engine.show("operators").to_json()["operators"] == []
        assert engine.show("feeds").to_json()["feeds"] == [], "the whole script is refused"
        # Nobody answers at this address, and nobody is asked.
        engine.execute(
            "register operator a() from 'http' with (url 'https://vision.example/mobs');"
            "register operator b(k text) from 'lookup' with (database 'market', table 't', key 'k');"
        )


def test_owners_cannot_register_or_drop_operators(engine: Engine, modules: Path) -> None:
    engine.execute(REGISTER)
    (modules / "imported").unlink()
    engine.owners.add("ann")
    ann = engine.authenticated(engine.owners.new_token("ann", "test").to_json()["token"])
    for value in (ann, engine.acting_as("ann")):
        for text in (REGISTER, "register operator far from 'distance';", "drop operator mob;"):
            error = error_of(value, text)
            assert "run code" in error.message
    assert not (modules / "imported").exists()
    ann.execute("create feed Mine from Wire where mob(?n);")
    assert versions_of_owner(ann, "Mine") == {1}
    messages = json.dumps([ann.show("operators").to_json(), ann.execute("show operator mob;")[0].to_json()])
    assert "city_vision" not in messages
    assert ann.show("operators").to_json()["operators"][0]["queries"] == 1
    assert ann.execute("show operator mob;")[0].to_json()["used_by"] == ["Mine"]


def versions_of_owner(engine: Engine, name: str) -> set[int]:
    with engine.workspace.catalog.read() as connection:
        feed = feeds.feed_by_name(connection, name, engine.actor.owner)
        assert feed is not None
        node = operators.current_nodes(connection, [feed.id])[feed.id]
    return {call.version for call in operators.calls_in(node)}


def test_token_of_the_admin_cannot_register_operators(engine: Engine) -> None:
    token = engine.owners.new_token("operator", "web").to_json()["token"]
    with pytest.raises((StatementError, NotAllowedError)):
        engine.authenticated(token).execute(REGISTER)


def test_registering_again_rebinds_the_queries(engine: Engine) -> None:
    engine.owners.add("ann")
    engine.execute(REGISTER + MOBS + "create feed Large from Mobs where n > 3;")
    engine.acting_as("ann").execute("create feed Mine from Wire where not mob(3);")
    (again,) = engine.execute(REGISTER)
    assert again.to_json()["version"] == 2
    assert again.to_json()["feeds"] == ["Mine of ann", "Mobs"]
    assert versions(engine, "Mobs") == versions_of_owner(engine.acting_as("ann"), "Mine") == {2}
    with engine.workspace.catalog.read() as connection:
        mobs = feeds.feed_by_name(connection, "Mobs")
        assert mobs is not None
        assert mobs.revision == 2
        held = operators.operator_versions(connection, [("mob", 1), ("mob", 2)])
    assert len(held) == 2


def test_operator_is_registered_and_replaced_in_one_script(engine: Engine) -> None:
    engine.execute(REGISTER + MOBS)
    engine.execute(
        "create or replace feed Mobs from Wire where mob(?n) and ?n > 5;"
        + REGISTER
        + "create or replace feed Mobs from Wire where mob(?n) and ?n > 6;"
        + "register operator mob(?people number) from 'city_vision:mob_pattern';"
        + "create feed Fraction from Wire where mob(?n) and ?n = 6.5;"
    )
    assert versions(engine, "Mobs") == versions(engine, "Fraction") == {3}
    with engine.workspace.catalog.read() as connection:
        mobs = feeds.feed_by_name(connection, "Mobs")
        assert mobs is not None
        assert mobs.revision == 5


def test_registration_that_existing_queries_do_not_fit_is_refused(engine: Engine) -> None:
    engine.execute(REGISTER + MOBS + "create feed Fine from Wire where mob(?n);")
    error = error_of(
        engine, "register operator mob(?people text) from 'city_vision:mob_pattern';", kind=StillNeededError
    )
    assert "feed Mobs could no longer use mob: ?n > 50 has the same result for every value" in error.message
    assert versions(engine, "Mobs") == versions(engine, "Fine") == {1}
    assert engine.execute("show operator mob;")[0].to_json()["signature"] == "mob(?people int)"
    assert "Mobs, Fine" not in error.message


def test_dropping_an_operator_drops_its_queries_only_with_cascade(engine: Engine) -> None:
    engine.execute(REGISTER + MOBS + "create feed Large from Mobs where n > 3; create feed Other from Wire;")
    error = error_of(engine, "drop operator mob;", kind=StillNeededError)
    assert error.message == "mob is still needed by feed Mobs"
    assert error.hint == "`drop operator mob cascade` drops them too"
    (dropped,) = engine.execute("drop operator mob cascade;")
    assert dropped.to_json()["feeds"] == ["Large", "Mobs"]
    assert [feed["name"] for feed in engine.show("feeds").to_json()["feeds"]] == ["Wire", "Other"]
    assert engine.show("operators").to_json()["operators"] == []
    error = error_of(engine, "drop operator mob;", kind=UnknownNameError)
    assert "show operators" in (error.hint or "")
    engine.execute(REGISTER)
    assert engine.show("operators").to_json()["operators"][0]["version"] == 2
    engine.execute("drop operator mob;")


def test_rebound_queries_keep_their_start(engine: Engine) -> None:
    engine.execute(REGISTER + MOBS + "subscribe to Mobs output log;")
    with engine.workspace.catalog.read() as connection:
        first, before = plan_versions.current_plan(connection), feeds.since_of(connection)
    engine.publish("Wire", [{"id": "1", "title": "A crowd in the square"}])
    engine.execute(REGISTER)
    with engine.workspace.catalog.read() as connection:
        second, after = plan_versions.current_plan(connection), feeds.since_of(connection)
    assert first is not None
    assert second is not None
    assert second.version > first.version, "the plan asks the new registration"
    assert before == after
    (dropped,) = engine.execute("drop operator mob cascade;")
    assert (dropped.to_json()["feeds"], len(dropped.to_json()["subscriptions"])) == (["Mobs"], 1)
    with engine.workspace.catalog.read() as connection:
        last = plan_versions.current_plan(connection)
    assert last is not None
    assert last.queries == 0


def test_unknown_operator_is_refused_with_its_position(engine: Engine) -> None:
    engine.execute(REGISTER)
    error = error_of(engine, "create feed A from Wire\n  where mop(?n);", kind=UnknownNameError)
    assert error.span is not None
    assert (error.span.line, error.span.column) == (2, 9)
    assert error.hint == "did you mean mob?"
    with pytest.raises(UnknownNameError, match="there is no operator xyz"):
        engine.preview("create feed A from Wire where xyz();")


def test_large_script_may_contain_operators(engine: Engine) -> None:
    engine.execute(REGISTER)
    text = "".join(
        f"create feed Q{n} from Wire where title contains 'w{n}' and mob(?x) and ?x > {n};\n" for n in range(300)
    )
    engine.execute(text)
    with engine.workspace.catalog.read() as connection:
        assert operators.use_counts(connection) == {"mob": 300}
        assert plan_versions.current_plan(connection) is None, "nobody subscribes, so nothing is compiled"
    wrong = text.replace("Q", "R").replace("mob(?x) and ?x > 250;", "mbo(?x) and ?x > 250;")
    error = error_of(engine, wrong, kind=UnknownNameError)
    assert error.span is not None
    assert error.span.line == 251
    assert engine.show("operators").to_json()["operators"][0]["queries"] == 300
    (again,) = engine.execute(REGISTER)
    assert len(again.to_json()["feeds"]) == 300
    assert versions(engine, "Q299") == {2}


def test_the_command_shows_operators_in_eighty_columns(engine: Engine, tmp_path: Path) -> None:
    engine.execute(
        REGISTER
        + MOBS
        + "register operator near from 'city_vision:Near' budget 100 calls per minute on error retry for 3 days "
        "reading lat, lon, title, description, content release '2026.11-with-a-long-name' with (a 'b');"
    )
    run = CliRunner()
    root = str(tmp_path / "root")
    shown = run.invoke(app, ["operators", "--workspace", root])
    assert shown.exit_code == 0
    assert "mob(?people int)" in shown.output
    assert "1 query uses it" in " ".join(shown.output.split())
    assert max(map(len, shown.output.splitlines())) <= 80
    document = json.loads(run.invoke(app, ["operators", "--workspace", root, "--json"]).output)
    assert [operator["name"] for operator in document["operators"]] == ["mob", "near"]
    value = json.loads(run.invoke(app, ["operators", "mob", "--workspace", root, "--json"]).output)
    assert value["used_by"] == ["Mobs"]
    assert run.invoke(app, ["operators", "none", "--workspace", root]).exit_code == 3
