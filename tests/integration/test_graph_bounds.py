"""Hostile patterns and graphs: an expensive search affects only its own query, and incomplete bindings are marked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.in_process import InProcess

from runnel.engine import Engine, connect
from runnel.errors import InvalidConditionError

NUMBER = "http://www.w3.org/2001/XMLSchema#integer"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with connect(tmp_path / "root") as opened:
        opened.execute("register feed Pages;")
        yield opened


def graph(*triples: tuple[str, str, str | int]) -> str:
    def term(text: str | int) -> str:
        return f'"{text}"^^<{NUMBER}>' if isinstance(text, int) else f"<urn:{text}>"

    return "".join(f"<urn:{value}> <urn:{label}> {term(other)} .\n" for value, label, other in triples)


def run(engine: Engine, script: str, text: str) -> dict[str, Any]:
    """Return the bindings of the item, by the names of the feeds that match it."""
    engine.execute(script)
    names = [part.split()[0] for part in script.split("create feed ")[1:]]
    engine.execute("".join(f"subscribe to {name} output log;" for name in names))
    engine.publish("Pages", [{"id": "1", "graph": text}])
    ran = InProcess(engine)
    ran.run()
    ran.close()
    return {name: match.bindings for name in names for match in engine.matches(name)}


WIDE = [(f"b{number}", "q", number) for number in range(300)]


def test_patterns_joined_by_their_variables_stay_within_the_limits(engine: Engine) -> None:
    value, other = (" . ".join(f"?x <urn:{side}{number}> []" for number in range(17)) for side in "ab")
    with pytest.raises(InvalidConditionError, match="35 variables") as refused:
        engine.execute(f"create feed A from Pages where graph {{ {value} }} and graph {{ {other} }};")
    assert refused.value.span is not None


def test_blank_nodes_do_not_multiply_rows(engine: Engine) -> None:
    script = "create feed A from Pages where graph { ?x <urn:p> ?y . _:a <urn:q> _:b . _:c <urn:q> _:d };"
    document = run(engine, script, graph(*[("a", "p", number) for number in (1, 2, 5)], *WIDE))
    assert [row["y"] for row in document["A"].rows] == [1.0, 2.0, 5.0]
    assert document["A"].count == 3


def test_failed_filter_is_not_evaluated_again_for_unrelated_variables(engine: Engine) -> None:
    pattern = "?x <urn:p> ?y . ?a <urn:q> ?b . ?c <urn:q> ?d . filter(?y < 0 or ?y > 4)"
    document = run(
        engine,
        f"create feed A from Pages where graph {{ {pattern} }};",
        graph(*[("a", "p", number) for number in (1, 2, 5)], *WIDE),
    )
    assert {row["y"] for row in document["A"].rows} == {5.0}


def test_condition_with_too_many_solutions_matches_without_bindings(engine: Engine) -> None:
    costly = "graph { ?a <urn:q> ?b . ?c <urn:q> ?d . ?z <urn:p> 7 }"
    script = (
        f"create feed A from Pages where (graph {{ ?x <urn:p> ?y }} and not {costly})"
        " or graph { ?x <urn:none> ?y };"
        "create feed B from Pages where graph { ?x <urn:p> ?y };"
    )
    many = [(f"b{number}", "q", number) for number in range(1100)]
    document = run(engine, script, graph(("a", "p", 5), *many))
    assert document["A"].rows == ()
    assert [row["y"] for row in document["B"].rows] == [5.0]


def test_expensive_patterns_do_not_affect_cheap_ones(engine: Engine) -> None:
    layers = [
        (f"n{layer}x{value}", "e", f"n{layer + 1}x{other}")
        for layer in range(24)
        for value in range(4)
        for other in range(4)
    ]
    costly = [" . ".join(f"?v{at} <urn:e> ?v{(at + 1) % length}" for at in range(length)) for length in range(12, 24)]
    script = "".join(
        f"create feed C{number} from Pages where graph {{ {value} }};" for number, value in enumerate(costly)
    )
    cheap = "create feed Cheap from Pages where graph { ?a <urn:zz> ?b . ?b <urn:zz> ?c };"
    results = run(engine, script + cheap, graph(("z1", "zz", "z2"), ("z2", "zz", "z3"), *layers))
    assert list(results) == ["Cheap"]
    put_aside = engine.execute("show quarantine;")[0].to_json()["quarantine"]
    assert put_aside, "some of the costly ones were given up, or this test says nothing"


def test_bindings_are_incomplete_if_there_are_too_many_solutions(engine: Engine) -> None:
    script = "create feed A from Pages where graph { ?a <urn:q> ?b . ?c <urn:q> ?d };"
    document = run(engine, script, graph(*WIDE))
    assert (len(document["A"].rows), document["A"].count) == (100, 300)
