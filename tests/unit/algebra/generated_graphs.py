"""Hypothesis strategies for RDF terms, graphs and patterns, and the same evaluation by an RDF store (pyoxigraph).

The store is an independent implementation, so agreement with it is evidence. `set_apart` lists the cases in which
Runnel differs from it on purpose; the documentation of conditions describes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyoxigraph as ox
from hypothesis import strategies as st

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, Edge, GraphFilter, Node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.rdf_terms import XSD, Sort, known_term
from runnel.algebra.nodes.calls import RELATIONS, Relation, Variable
from runnel.algebra.nodes.item_patterns import is_local
from runnel.model.graph import RdfGraph, Triple, canonical_term, escape_text


def typed(text: object, name: str) -> str:
    """Return a literal of an XML Schema type."""
    return f'"{text}"^^<{XSD}{name}>'


# --- terms -------------------------------------------------------------------------------------------------------

_WHOLE_TYPES = ("integer", "int", "long", "short", "nonNegativeInteger", "negativeInteger", "unsignedByte")
_SIGNED = st.sampled_from(["", "+", "-"])
_ZEROS = st.sampled_from(["", "0", "00"])
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_SOME_TEXTS = st.sampled_from(
    ["", "a", "b", "ab", "B", "é", "日", "\U0001f600", "\uffee", 'a"b', "a\\b", "a\nb", "1", "true"]
)


def _in_zone(zones: Sequence[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(zones)


_ZONES = ("", "Z", "+00:00", "-00:00", "+01:00", "-05:30", "+14:00", "-14:00", "+15:00", "+01:60", "+1:00")
_DATES = st.builds(
    "{}-{:02}-{:02}".format,
    st.sampled_from(
        ["2020", "2024", "1969", "1900", "2000", "0001", "0000", "-0044", "12020", "9999", "02020", "202"]
    ),
    st.integers(0, 13),
    st.integers(0, 32),
)
_CLOCKS = st.builds(
    "{:02}:{:02}:{:02}{}".format,
    st.integers(0, 25),
    st.integers(0, 60),
    st.integers(0, 60),
    st.sampled_from(["", ".5", ".25", ".000", ".123456", "."]),
)
_NEAR_DATES = st.sampled_from(["2020-01-01", "2020-01-02", "2019-12-31"])
_NEAR_CLOCKS = st.sampled_from(
    ["00:00:00", "24:00:00", "01:00:00", "23:00:00.5", "24:00:01", "24:00:00.5", "24:00:00.0"]
)

numbers = st.one_of(
    st.builds(typed, st.builds("{}{}{}".format, _SIGNED, _ZEROS, st.integers(0, 40)), st.sampled_from(_WHOLE_TYPES)),
    st.builds(typed, st.integers(-(2**53), 2**53), st.just("integer")),
    st.builds(
        typed,
        st.builds("{}{}.{}".format, _SIGNED, st.integers(0, 12), st.sampled_from(["", "0", "5", "50", "25", "1"])),
        st.sampled_from(["decimal", "double", "float"]),
    ),
    st.builds(typed, st.floats(allow_nan=False, allow_infinity=False).map(repr), st.just("double")),
    st.builds(
        typed,
        st.sampled_from(["INF", "-INF", "+INF", "NaN", "1e2", "1E-2", "-0", "-0.0e0", ".5", "5.", "1e400", "4e39"]),
        st.sampled_from(["double", "float"]),
    ),
)
truths = st.builds(typed, st.sampled_from(["true", "false", "0", "1"]), st.just("boolean"))
texts = st.builds(lambda text: f'"{escape_text(text)}"', _TEXTS | _SOME_TEXTS)
tagged = st.builds(
    lambda text, tag: f'"{escape_text(text)}"@{tag}',
    _SOME_TEXTS,
    st.sampled_from(["en", "EN", "fr", "en-GB"]),
)
moments = st.builds(
    lambda day, clock, zone, name: typed(f"{day}T{clock}{zone}", name),
    _DATES | _NEAR_DATES,
    _CLOCKS | _NEAR_CLOCKS,
    _in_zone(_ZONES),
    st.sampled_from(["dateTime", "dateTime", "dateTimeStamp"]),
)
days = st.builds(lambda day, zone: typed(day + zone, "date"), _DATES | _NEAR_DATES, _in_zone(_ZONES))
others = st.one_of(
    st.builds(lambda text, name: f'"{text}"^^<urn:type:{name}>', st.sampled_from("ab1"), st.sampled_from("xy")),
    st.builds(
        typed,
        st.sampled_from(["", "x", " 1", "1 ", "1,5", "TRUE", "0x1", "1_0", "١", "2020-01-01 00:00:00"]),
        st.sampled_from(["integer", "decimal", "double", "float", "boolean", "dateTime", "date"]),
    ),
    st.sampled_from(['"1"^^<decimal:x>', '"1"^^<urn:integer>', typed("1", "integers"), typed("1e0", "decimal")]),
)
iris = st.sampled_from(["<urn:a>", "<urn:b>", "<https://muse.example/é?x#y>"])
literals = st.one_of(numbers, truths, texts, tagged, moments, days, others).map(canonical_term)
terms = literals | iris


def set_apart(left: str, relation: Relation, right: str) -> bool:
    """Return whether Runnel may differ from the store on two terms, on purpose or because the store is not SPARQL."""
    first, second = known_term(left), known_term(right)
    ordering = relation not in ("=", "!=")
    types = {left.rpartition("^^")[2], right.rpartition("^^")[2]}
    if first.sort == second.sort == Sort.NUMBER:
        single = f"<{XSD}float>" in types and len(types) > 1 and not types <= {f"<{XSD}float>", f"<{XSD}double>"}
        # Runnel's numbers are doubles; the store converts a number to float in a comparison with a float. The store
        # treats comparisons with NaN as errors, XPath as false.
        return single or (ordering and (first.key != first.key or second.key != second.key))
    if first.sort == second.sort and first.sort in (Sort.MOMENT, Sort.DAY):
        # A time without a zone is in UTC for Runnel; for the store it may be in any zone of ±14 hours.
        return _has_zone(left) != _has_zone(right)
    if not ordering or first.sort != second.sort:
        return False
    # The store orders texts of the same language, does not order booleans, and treats every term as less than or
    # equal to itself, even if it has no order.
    return first.sort in (Sort.TAGGED, Sort.TRUTH) or left == right


def _has_zone(term: str) -> bool:
    text = term[1 : term.rindex('"')]
    return text.endswith("Z") or (text[-6] in "+-" and text[-3] == ":")


_ANSWERS = " ".join(f"((?a {relation} ?b) AS ?r{index})" for index, relation in enumerate(RELATIONS))
_EMPTY = ox.Store()


def compared_by_store(left: str, right: str) -> dict[Relation, bool | None]:
    """Return the results of the store for two terms, which are not blank nodes, in every relation."""
    query = f"SELECT {_ANSWERS} WHERE {{ VALUES (?a ?b) {{ ({left} {right}) }} }}"
    results = next(iter(_EMPTY.query(query)))  # type: ignore[arg-type]
    return {
        value: None if results[index] is None else results[index].value == "true"
        for index, value in enumerate(RELATIONS)
    }


# --- graphs and patterns -----------------------------------------------------------------------------------------

NODES = ("<urn:a>", "<urn:b>", "<urn:c>", "_:m", "_:n")
LABELS = ("<urn:p>", "<urn:q>", "<urn:r>")
VALUES = (
    *(typed(number, "integer") for number in (1, 2, 3)),
    *(typed(number, "decimal") for number in ("1.5", "2")),
    *(typed(number, "double") for number in ("1.5", "3", "INF")),
    typed("true", "boolean"),
    typed("false", "boolean"),
    '"a"',
    '"b"',
    '"2"',
    '"a"@en',
    '"b"@en',
    typed("x", "integer"),
    '"a"^^<urn:type:x>',
    '"b"^^<urn:type:x>',
    typed("2020-01-01T00:00:00Z", "dateTime"),
    typed("2020-01-01T00:30:00+01:00", "dateTime"),
    typed("2020-01-01", "date"),
    typed("2020-01-02", "date"),
)
"""Terms that the store does not change; it converts others to a canonical form."""

triples = st.tuples(st.sampled_from(NODES), st.sampled_from(LABELS), st.sampled_from(NODES) | st.sampled_from(VALUES))
graphs = st.lists(triples, max_size=14).map(RdfGraph.of)

_variables = st.sampled_from(["x", "y", "z", "_:k"]).map(Variable)
_subjects = _variables | _variables | st.sampled_from(NODES[:3])
_labels = st.sampled_from(LABELS) | st.sampled_from(LABELS) | st.sampled_from("xyz").map(Variable)
_objects = st.one_of(_variables, _variables, st.sampled_from(NODES[:3]), st.sampled_from(VALUES))
_edges = st.lists(st.builds(Edge, _subjects, _labels, _objects), min_size=1, max_size=4)


@st.composite
def patterns(draw: st.DrawFn, *, is_written: bool = False) -> Graph:
    """Generate a pattern whose filter uses only its own variables. `is_written`: the language can express it.

    `Certain` has no syntax; it results from comparisons outside the braces.
    """
    edges = tuple(draw(_edges))
    bound = sorted({node.name for edge in edges for node in edge.nodes if isinstance(node, Variable)})
    names = [name for name in bound if not is_local(name)]
    if not names or not draw(st.booleans()):
        return Graph(edges)
    variables: st.SearchStrategy[Node] = st.sampled_from(names).map(Variable)
    either = st.one_of(variables, variables, st.sampled_from(VALUES), st.sampled_from(NODES[:3]))
    relations = st.sampled_from(RELATIONS)
    comparison: st.SearchStrategy[GraphFilter] = st.one_of(
        st.builds(Comparison, variables, relations, either), st.builds(Comparison, either, relations, variables)
    )
    filters: st.SearchStrategy[GraphFilter] = st.recursive(
        comparison,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: AllOf(tuple(parts))),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: AnyOf(tuple(parts))),
            inner.map(Complement),
            *(() if is_written else (inner.map(Certain),)),
        ),
        max_leaves=5,
    )
    return Graph(edges, draw(filters))


def store_of(triples: Iterable[Triple]) -> ox.Store:
    """Return an RDF store with the triples of a graph."""
    store = ox.Store()
    lines = "".join(f"{subject} {label} {object_} .\n" for subject, label, object_ in triples)
    store.load(lines.encode(), format=ox.RdfFormat.N_TRIPLES)
    return store


def solved_by_store(graph: Graph, store: ox.Store) -> list[dict[str, str]]:
    """Return the solutions of a pattern by SPARQL, without local variables."""
    where = " . ".join(" ".join(map(_node, edge.nodes)) for edge in graph.edges)
    tail = "" if graph.filter is None else f" FILTER({_filter(graph.filter)})"
    names = sorted({node.name for edge in graph.edges for node in edge.nodes if isinstance(node, Variable)})
    names = [name for name in names if not is_local(name)]
    chosen = " ".join(f"?{name}" for name in names) or "(1 AS ?nothing)"
    query = store.query(f"SELECT {chosen} WHERE {{ {where}{tail} }}")
    return [_without_labels({name: canonical_term(str(row[name])) for name in names}) for row in query]  # type: ignore[union-attr]


def _without_labels(solution: Mapping[str, str]) -> dict[str, str]:
    """Return a solution without the labels of blank nodes, because the store renames them."""
    return {name: "_:" if term.startswith("_:") else term for name, term in solution.items()}


def known_of(solution: Mapping[str, str]) -> dict[str, str]:
    """Convert one of Runnel's solutions to the form that `solved_by_store` returns."""
    return _without_labels({name: term for name, term in solution.items() if not is_local(name)})


def _node(node: Node) -> str:
    """Return a node in SPARQL syntax. Local variables become blank nodes."""
    if isinstance(node, Variable):
        return f"?local_{node.name[2:]}" if is_local(node.name) else f"?{node.name}"
    return node


def _filter(graph_filter: GraphFilter) -> str:
    match graph_filter:
        case Comparison(left, ("=" | "!=") as relation, right):
            return f"({_node(left)} {relation} {_node(right)})"
        case Comparison(left, relation, right):
            return _ordered(_node(left), relation, _node(right))
        case AllOf(parts):
            return f"({' && '.join(map(_filter, parts))})"
        case AnyOf(parts):
            return f"({' || '.join(map(_filter, parts))})"
        case Complement(part):
            return f"(!{_filter(part)})"
        case Certain(part):
            return f"COALESCE({_filter(part)}, false)"


def _ordered(left: str, relation: str, right: str) -> str:
    """Compare as SPARQL specifies where the store deviates (see `set_apart`): booleans are ordered, IRIs are not."""
    boolean, whole = f"<{XSD}boolean>", f"<{XSD}integer>"
    plain = f"(<{XSD}string>, <{XSD}dateTime>, <{XSD}date>)"
    truths_in = f"datatype({left}) = {boolean} && datatype({right}) = {boolean}"
    of_truths = f"({whole}({left}) {relation} {whole}({right}))"
    known_in = (
        f"(isNumeric({left}) && isNumeric({right})) || (datatype({left}) IN {plain} && datatype({right}) IN {plain})"
    )
    return f"IF({truths_in}, {of_truths}, IF({known_in}, {left} {relation} {right}, 1/0))"
