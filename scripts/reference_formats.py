"""Generate the page of file formats from the code: schemas of logs, arrays of plans, tables of the catalog."""

from __future__ import annotations

import inspect
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
from scripts.reference_markdown import block, code, page, table

from runnel.catalog.store.migrations import HISTORY, VERSION_TABLE
from runnel.catalog.store.schema import metadata
from runnel.families import registry
from runnel.library import compile as compile_queries
from runnel.logs.matches.match_files import DETAILED_SCHEMA, MATCH_SCHEMA
from runnel.model.bindings import MAX_ROWS
from runnel.model.item_batch import BOOLEAN, ITEM_SCHEMA, MOMENT, NUMBER, TEXT
from runnel.plan.manifest import FORMAT
from runnel.plan.store import ARRAYS, MANIFEST, PREDICATES, PlanVersion, load
from runnel.scaleout.partitioning import ASSIGNMENT
from runnel.scaleout.partitioning import MANIFEST as DIVISION
from runnel.sinks.registry import GROUP
from runnel.sources.documents.wire import DocumentKind
from runnel.storage.file_storage import FileStorage
from runnel.streaming.job import FORM, form_of

_PLACES = (
    ("runnel.toml", "the settings; this file makes a directory a workspace"),
    ("catalog.sqlite", "the catalog, unless `catalog` names another"),
    ("workspace.json", "the identity of the workspace, and its last sequence and epoch when this file was written"),
    ("items/log/", "the item log's newest segments, in Arrow"),
    ("items/day/DAY/", "matched items by day of acceptance, in Parquet"),
    ("matches/LINEAGE/", "the match log, in Arrow; merged files are in `matches/day/DAY/`"),
    ("tables/ID/", "bases and histories of tables, in Arrow"),
    ("plans/ID/", "plan folders"),
    ("checkpoints/LINEAGE/", "Spark's checkpoint of the current lineage"),
    ("quarantine/", "the bytes of quarantined documents"),
    ("trash/TIME/", "orphans, which the catalog did not reference at that time; deleted after a day"),
    ("sheets/", "stylesheets; copies of those in use are named by their digest"),
    ("out/", "files that subscriptions write"),
    ("logs/", "`runnel.log`, the application log; Spark's own: `spark.log`, `spark-stderr.log`"),
)

_ITEM = {
    "sequence": "position in the log; from 1, without gaps",
    "accepted": "time of acceptance",
    "feed": "id of the source feed",
    "id": "the item's id in its source",
    "version": "counts from 1; each edit increases it",
    "attributes": "all values of all attributes",
}

_MATCH = {
    "sequence": "the item",
    "steps": "the ascending ids of the feeds that the item matches, each as the difference from the previous id "
    "(from 0 for the first)",
    "leaps": "the differences that do not fit into two bytes; each is represented by 65535 in `steps`",
    "details": "the bindings and annotations of the item's matches, as JSON, if there are any",
}

_VALUE = {
    "name": "the attribute",
    "kind": f"{TEXT} text, {NUMBER} number, {BOOLEAN} boolean, {MOMENT} point in time; "
    + ", ".join(f"{kind.code} {kind.name}" for kind in sorted(registry().kinds.values(), key=lambda kind: kind.code)),
    "text": "the value, if it is a text",
    "number": "the value, if it is a number or a boolean (0 or 1)",
    "moment": "the value, if it is a point in time",
}

_ARRAYS = {
    "atoms": "each distinct atom once, in encoded form",
    "clauses": "disjunctions: rows of literals (atom × 2, plus 1 if negated)",
    "predicates": "conjunctions: rows of clauses",
    "predicate_formulas": "the formula that is evaluated because the normal form is too large, or -1",
    "formula_kinds": "kinds of the formulas' nodes",
    "formulas": "rows of children of the formulas' nodes",
    "scopes": "sets of source feeds, by id",
    "target_predicates": "the predicate of each target",
    "target_scopes": "the scope of each target",
    "targets": "for each target, the indexes of the queries that match an item when the target does",
    "query_ids": "ids of the queries, ascending; they are ids of feeds",
    "query_since": "the sequence after which each query matches items",
    "tombstones": "in a delta: queries of the base that were removed",
    "disjuncts": "ids of the disjuncts that have gates, and the feed of each gate; only if there are any",
    "gates": "the gates of feeds as JSON: the rule, the sequence after which the gate starts (`since`), a "
    "digest of the "
    "definitions that it depends on (`definition`), and a digest of the latter two (`history`)",
    "layout": "the matcher's index: keys, streams, vocabulary",
}

_TABLES = {
    "counters": "last sequence, clock and other counters",
    "feeds": "feeds; `since` is set while a feed is matched",
    "revisions": "every definition that a feed had",
    "reads": "which feed's query reads which feed",
    "reads_groups": "which queries read which groups of feeds (`all feeds tagged …`)",
    "subscriptions": "subscriptions, ended ones too",
    "item_segments": "the item log's manifest",
    "seen": "newest version and fingerprint of every item id",
    "gate_states": "states of gates by key, and when they expire",
    "windows": "windows of joins whose items are in files, and how far back",
    "window_segments": "the files with the items of windows",
    "join_work": "counted comparisons of joins",
    "tables": "registered tables: columns, options, and numbers of rows and changes",
    "table_files": "bases and histories of tables",
    "offers": "the last day on which each feed provided items, known or new",
    "source_files": "files read so far, and their problems",
    "plans": "plan versions: base and delta folders, and the folders of the partitioning, if there is one",
    "distribution_work": "recent load of each partition of a partitioning; old values decay",
    "lineages": "runs of batches with one checkpoint",
    "match_segments": "the match log's manifest: one row per committed batch",
    "match_parts": "the files of the segments",
    "leases": "who runs, under which epoch, until when",
    "messages": "the delivery ledger: one row per message",
    "cursors": "the progress of delivery; 0 is the shared cursor",
    "attempts": "failed attempts to send a message, and why they failed",
    "owners": "owners; 1 is the admin",
    "tokens": "API tokens, as argon2 hashes",
    "secrets": "secrets of the workspace, encrypted",
    "signing_keys": "keys that sign messages to webhooks, encrypted",
    "polls": "state of every web feed: validators, next poll, problems",
    "hubs": "WebSub: subscriptions at hubs, and their leases",
    "receipts": "totals per subscription of completed messages that were removed",
    "observations": "samples of batches, until they are merged into the statistics",
    "statistics": "learned frequencies of words and atoms, per feed and overall (0)",
    "tags": "the tags of feeds",
    "consents": "which targets agreed to messages of which owners, and requests to confirm",
    "costs": "sampled costs of the most expensive queries, and when they were logged",
    "operators": "registered operators, by version; `dropped` if replaced or removed",
    "uses_operators": "which queries use which operators",
    "prefixes": "registered prefixes of graph patterns",
    "undecided": "items that operators could not decide for some queries, until they are logged again",
    "supplements": "items that were logged again, and the queries they are matched with",
    "operator_cache": "files with cached answers of operators",
    "operator_learning": "learned costs and selectivities of operators",
    "quarantine": "quarantined documents, items and evaluations, with the reason",
}


def formats_page() -> str:
    """Return the page: every file of a workspace, and its format."""
    return page(
        "# File formats and catalog",
        "Data files are immutable. A file is valid only if the catalog references it; Runnel does not search "
        "directories. You may read data files with other tools, but do not edit them. Edit only "
        "`runnel.toml` and your "
        "stylesheets in `sheets/`.",
        table(["path", "contents"], [(code(place), meaning) for place, meaning in _PLACES]),
        *_logs(),
        *_plans(),
        *_catalog(),
        "## Checkpoints",
        f"The format of Spark's checkpoint is `{FORM}`, or `{form_of(4)}` if Spark's keyed stage has four slots for "
        "shards. A checkpoint in another format is abandoned, and a new lineage starts after the last "
        "committed sequence. The offset of a batch is "
        '`{"sequence": last item, "plan": plan version}`.',
        "## Outputs",
        "Plug-ins add outputs as entry points of the group `runnel.sinks`.",
        table(["output", "what it is"], _outputs()),
        "## Documents that are read",
        f"{', '.join(code(kind.value) for kind in DocumentKind)}. The format is recognized by the content.",
    )


def _outputs() -> list[tuple[str, str]]:
    rows = []
    for entry in sorted(entry_points(group=GROUP), key=lambda value: value.name):
        if entry.value.startswith("runnel."):
            replace = (inspect.getdoc(entry.load()) or "").split("\n")[0].replace("`output memory 'name'`: ", "")
            rows.append((code(entry.name), replace[:1].upper() + replace[1:]))
    return rows


def _logs() -> tuple[str, ...]:
    return (
        "## Item log and archive",
        f"Format `{_format(ITEM_SCHEMA)}`. A segment in `items/log` lacks `sequence` and `accepted`: they are in its "
        "manifest row, because the file is written before the transaction that accepts it. Archived files have all "
        "columns.",
        _schema(ITEM_SCHEMA, _ITEM),
        "An element of `attributes`:",
        _schema(ITEM_SCHEMA.field("attributes").type.value_type, _VALUE),
        "## Match log",
        f"Format `{_format(MATCH_SCHEMA)}`; a file in which a match has bindings or annotations has the format "
        f"`{_format(DETAILED_SCHEMA)}`, with the last column. There is one row for every item that matched a query. "
        "An item that matched nothing but was stopped at a gate may also have a row, with bindings and without "
        "steps.",
        _schema(DETAILED_SCHEMA, _MATCH),
        "The JSON is a list of objects. An object with `annotations` has the items that `queries` joined: for each "
        "join its name, the id of its feed, the sequences of the newest joined items, and their number. "
        "In the other objects, `queries` are ids of feeds, `rows` their bindings (for every variable a "
        'number, a text, a truth value, or `{"moment": …}`), and `count` is the number of rows found, of which at '
        f"most {MAX_ROWS} are kept. `partial` is true if the search reached a limit and there may be more rows "
        "(at most 300 solutions of a pattern are searched).",
    )


def _format(schema: Any) -> str:
    return str(schema.metadata[b"runnel.format"].decode())


def _schema(schema: Any, meanings: dict[str, str]) -> str:
    rows = []
    for field in schema:
        kind = "list of values" if pa.types.is_list(field.type) and field.name == "attributes" else str(field.type)
        kind = kind.replace("list<item: int64 not null>", "list of int64")
        empty = " or null" if field.nullable else ""
        rows.append((code(field.name), kind + empty, meanings[field.name]))
    return table(["column", "type", "meaning"], rows)


def _plans() -> tuple[str, ...]:
    plan = compile_queries(["create feed A from B distinct where title contains 'a' and n > 1 and not c = 'x'"])
    loaded = load(FileStorage(Path(plan.folder).as_uri()), PlanVersion(0, "plan"))
    stored: dict[str, set[str]] = {}
    for name, array in {**loaded.base.logical.arrays(), "tombstones": loaded.base.tombstones}.items():
        stored.setdefault(name.split(".")[0], set()).add(array.dtype.name)
    stored["layout"] = {array.dtype.name for array in loaded.base.layout.values()}
    rows = [(code(name), ", ".join(sorted(kinds)), _ARRAYS[name]) for name, kinds in stored.items()]
    return (
        "## Plan folders",
        f"Format {FORMAT}. A folder holds `{MANIFEST}`, written last, and array files in NumPy's format. The "
        "manifest has `format`, `kind` (`base` or `delta`), `parent` (of a delta: its base), `counts`, the size and "
        "SHA-256 digest of every file, the position of every array, and the cost of building the plan. A plan "
        "version is a base and at most one delta. Sets are stored as two arrays, `.offsets` and `.values`; texts as "
        "`.offsets` and `.data`. If the predicate table (atoms to formulas) is large, it and other rarely used "
        f"arrays are in `{PREDICATES}`, everything else in `{ARRAYS}`.",
        "A *scope* is a set of source feeds, and a *target* is a pair of a predicate and a scope.",
        table(["array", "types", "meaning"], rows),
        "A version may also name a *partitioning*: a directory that describes how the queries of the base are "
        f"divided. `{DIVISION}` has the folder of the router, the folder and the expected load of every "
        "partition, and "
        f"the reason for this division. `{ASSIGNMENT}` is a NumPy archive with the partition (counted from 0), the "
        "group and the expected microseconds of every query, by ascending id. The router and the partitions "
        "are plan folders like any other. The queries of the router are the partitions: its query 1 is partition 0.",
    )


def _catalog() -> tuple[str, ...]:
    rows = [(code(name), _TABLES[name]) for name in sorted(metadata.tables)]
    return (
        "## Catalog",
        f"Version {HISTORY.version}, in the table `{VERSION_TABLE}`, with a fingerprint of the tables. "
        "Times are microseconds since 1970 in UTC. Ids are never reused. `src/runnel/catalog/store/schema.py` "
        "declares the columns.",
        table(["table", "contents"], rows),
        "An example, with the `sqlite3` program:",
        block('sqlite3 catalog.sqlite "select key, state, attempts, outcome from messages"'),
    )
