"""Graph patterns and prefixes in statements and commands: declared, shown, refused and backed up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import runnel
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.query import Filter
from runnel.algebra.semantics.close_conditions import leaves
from runnel.catalog.declared import feeds
from runnel.cli.main import app
from runnel.engine import Engine
from runnel.engine.answers import PrefixDone
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.restore import restore
from runnel.errors import Span, StatementError, UnknownNameError
from runnel.language.graphs.iri_prefixes import PREDEFINED_PREFIXES

LAB = "register prefix lab as 'http://lab.example/';"
PAGES = "register feed Pages;"
RECENT = "create feed Recent from Pages where graph { ?page lab:year ?y . filter(?y > 2003) };"
CANONICAL = "create feed Recent from Pages where graph { ?page <http://lab.example/year> ?y . filter(?y > 2003) };"


def refused(engine: Engine, text: str) -> StatementError:
    with pytest.raises(StatementError) as error:
        engine.execute(text)
    assert error.value.text == text
    return error.value


def patterns_of(engine: Engine, name: str) -> list[Graph]:
    with engine.workspace.catalog.read() as connection:
        feed = feeds.feed_by_name(connection, name, engine.actor.owner)
        assert feed is not None
        node = feeds.definitions(connection, [feed.id])[feed.id]
    assert isinstance(node, Filter)
    return [leaf for leaf in leaves(node.condition) if isinstance(leaf, Graph)]


def test_a_script_registers_a_prefix_and_uses_it(engine: Engine) -> None:
    answers = engine.execute(LAB + PAGES + RECENT)
    assert answers[0].message == "registered prefix lab for http://lab.example/"
    assert answers[0] == PrefixDone(answers[0].message, "lab", "http://lab.example/")
    assert engine.show("Recent").to_json()["statement"] == CANONICAL
    (pattern,) = patterns_of(engine, "Recent")
    assert "<http://lab.example/year>" in str(pattern)
    assert "lab:" not in str(pattern)


def test_changed_prefix_does_not_change_queries(engine: Engine) -> None:
    engine.execute(LAB + PAGES + RECENT)
    (answer,) = engine.execute("register prefix lab as 'http://other.example/';")
    assert answer.message == "registered prefix lab for http://other.example/, which replaces http://lab.example/"
    assert engine.show("Recent").to_json()["statement"] == CANONICAL
    engine.execute(RECENT.replace("create", "create or replace"))
    assert engine.show("Recent").to_json()["statement"] == CANONICAL.replace("lab.example", "other.example")
    engine.execute("drop prefix lab;")
    assert "there is no prefix lab:" in refused(engine, RECENT.replace("Recent", "Again")).message
    assert engine.show("Recent").to_json()["statement"] == CANONICAL.replace("lab.example", "other.example")


def test_script_uses_the_latest_registration_of_a_prefix(engine: Engine) -> None:
    engine.execute(
        LAB
        + PAGES
        + RECENT
        + "register prefix lab as 'urn:second:';"
        + RECENT.replace("Recent", "Second")
        + "drop prefix lab;"
        + "create feed Third from Pages where graph { prefix lab: <urn:third:> ?x lab:year 3 };"
    )
    document = {name: str(patterns_of(engine, name)) for name in ("Recent", "Second", "Third")}
    assert "<http://lab.example/year>" in document["Recent"]
    assert "<urn:second:year>" in document["Second"]
    assert "<urn:third:year>" in document["Third"]


def test_unknown_prefix_is_refused_with_its_position(engine: Engine) -> None:
    engine.execute(LAB + PAGES)
    error = refused(engine, "show feeds;\ncreate feed A from Pages where\n graph { ?x a lap:Page };")
    assert isinstance(error, UnknownNameError)
    assert error.span == Span(3, 15, 23)
    assert error.hint == "did you mean lab?"
    assert "graph { prefix nobody: <" in (refused(engine, RECENT.replace("lab:", "nobody:")).hint or "")
    many = "".join(f"create feed A{n} from Pages where graph {{ ?x lab:p {n} }};\n" for n in range(250))
    error = refused(engine, f"{many}create feed B from Pages where graph {{ ?x lav:p 1 }};")
    assert error.span == Span(251, 43, 48)
    assert engine.show("feeds").to_json()["feeds"][0]["name"] == "Pages"
    assert len(engine.show("feeds").to_json()["feeds"]) == 1, "the script is refused whole"


def test_many_patterns_are_declared_in_one_script(engine: Engine) -> None:
    many = "".join(
        f"create feed A{n} from Pages where graph {{ ?x lab:p{n} ?y ; a lab:T }} and title contains 'w{n}';\n"
        for n in range(250)
    )
    engine.execute(LAB + PAGES)
    engine.execute(many)
    (pattern,) = patterns_of(engine, "A249")
    assert "<http://lab.example/p249>" in str(pattern)


def test_owners_declare_prefixes_inside_the_pattern(engine: Engine) -> None:
    engine.execute(LAB + PAGES)
    engine.owners.add("ann")
    ann = engine.authenticated(engine.owners.new_token("ann", "test").to_json()["token"])
    for value in (ann, engine.acting_as("ann")):
        for text in ("register prefix mine as 'urn:mine:';", LAB, "drop prefix lab;"):
            error = refused(value, text)
            assert "not with an API token" in error.message
            assert "graph { prefix" in (error.hint or "")
    assert engine.show("prefixes").to_json()["prefixes"][0]["iri"] == "http://lab.example/"
    ann.execute("create feed Mine from Pages where graph { prefix mine: <urn:mine:> ?x mine:p lab:a };")
    assert "<urn:mine:p>" in str(patterns_of(ann, "Mine"))
    assert ann.show("prefixes").to_json() == engine.show("prefixes").to_json()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("register prefix foaf as 'urn:f:';", "is predefined", "another name"),
        ("drop prefix foaf;", "built in", ""),
        ("drop prefix lap;", "there is no prefix lap", "did you mean lab?"),
        ("drop prefix nobody;", "there is no prefix nobody", "show prefixes"),
        ("register prefix lab as 'terms#';", "does not begin with a scheme", "http://"),
        ("register prefix lab as 'http://a b';", "it contains whitespace", "http://"),
        ("register prefix \"2nd\" as 'urn:a:';", "2nd cannot be a prefix", "letter"),
        ("register prefix lab: as 'urn:a:';", "expected `as`", ""),
    ],
)
def test_invalid_prefix_statements_are_refused(engine: Engine, text: str, message: str, hint: str) -> None:
    engine.execute(LAB)
    error = refused(engine, text)
    assert message in error.message
    assert hint in (error.hint or "")
    assert engine.show("prefixes").to_json()["prefixes"][0] == {
        "prefix": "lab",
        "iri": "http://lab.example/",
        "registered": True,
    }


def test_preview_resolves_prefixes(engine: Engine) -> None:
    engine.execute(LAB + PAGES)
    (answer,) = engine.execute("preview create feed P from Pages where graph { ?x lab:year ?y };")
    assert answer.to_json()["matched"] == 0
    assert (
        "there is no prefix lap:"
        in refused(engine, "preview create feed P from Pages where graph { ?x lap:y 1 };").message
    )
    assert engine.preview("create feed P from Pages where graph { ?x lab:year ?y }").looked_at == 0


def test_shown_prefixes_are_a_valid_script(engine: Engine, tmp_path: Path) -> None:
    engine.execute(LAB + "register prefix \"my-terms\" as 'urn:it''s:';")
    (answer,) = engine.execute("show prefixes;")
    assert answer.message == f"{2 + len(PREDEFINED_PREFIXES)} prefixes"
    assert answer.lines[:2] == (LAB, "register prefix \"my-terms\" as 'urn:it''s:';")
    with runnel.connect(tmp_path / "other") as other:
        other.execute("\n".join(answer.lines))
        assert other.show("prefixes").to_json() == engine.show("prefixes").to_json()


def test_the_command_line_shows_prefixes(engine: Engine, tmp_path: Path) -> None:
    engine.execute(LAB)
    run = CliRunner()
    root = str(tmp_path / "root")
    shown = run.invoke(app, ["show", "prefixes", "--workspace", root])
    assert shown.exit_code == 0
    assert LAB in shown.output
    document = json.loads(run.invoke(app, ["show", "prefixes", "--workspace", root, "--json"]).output)
    assert {prefix["prefix"] for prefix in document["prefixes"]} == {"lab", *PREDEFINED_PREFIXES}


def test_a_backup_keeps_prefixes(engine: Engine, tmp_path: Path) -> None:
    engine.execute(LAB + PAGES + RECENT)
    back_up(engine.workspace, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "again")
    with runnel.connect(tmp_path / "again", create=False) as again:
        assert again.show("prefixes").to_json() == engine.show("prefixes").to_json()
        assert again.show("Recent").to_json()["statement"] == CANONICAL
