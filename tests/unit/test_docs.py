"""Compare the documentation with the code: undocumented features, stale pages and untrue statements fail here.

Python blocks of all pages are executed. Blocks that begin with `# needs Spark` run under the marker `spark`, in one
process for all of them, because starting Spark takes most of the time.
"""

from __future__ import annotations

import ast
import doctest
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, get_args
from urllib.parse import unquote

import pytest
import typer
from scripts.reference_commands import commands

from runnel import errors
from runnel.algebra.trees import steps as tree_steps
from runnel.catalog.access import signing_keys
from runnel.cli.main import app
from runnel.cli.output import EXIT_CODES
from runnel.language.grammar import parse_joins
from runnel.language.grammar.parser import parse
from runnel.language.syntax import nesting
from runnel.language.syntax.statements import Statement
from runnel.matching.graphs.search import find_solutions
from runnel.matching.joins import find_pairs, resolve_joins
from runnel.matching.operators.plugins import check_answers
from runnel.matching.trees import tree_part
from runnel.model import bindings, graph, item
from runnel.model.trees import document_tree
from runnel.net import http_client, urls
from runnel.settings import Settings

ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"
README = ROOT / "README.md"
INDEX = ROOT / "docs" / "index.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NEEDS_SPARK = "# needs Spark"

sys.path.insert(0, str(ROOT))

from scripts import make_reference, reference_decisions, reference_markdown  # noqa: E402
from scripts.reference_markdown import NOTE  # noqa: E402


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# --- the reference names everything ------------------------------------------------------------------------------


def test_every_setting_is_in_the_reference() -> None:
    page = (REFERENCE / "settings.md").read_text("utf-8")
    assert "`RUNNEL_LAG_LIMIT`" in page
    for name, field in Settings.model_fields.items():
        assert page.count(f"| `{name}` |") == 1
        assert field.description, f"the setting {name} has no description"
        assert field.description in page


def test_every_kind_of_statement_has_an_example_in_the_reference() -> None:
    page = (REFERENCE / "language.md").read_text("utf-8")
    examples = re.findall(r"^Example:\n\n```\n(.*?)\n```", page, re.DOTALL | re.MULTILINE)
    shown = {type(parsed.statement) for example in examples for parsed in parse(example)}
    kinds = {kind for part in get_args(Statement) for kind in (get_args(part) or (part,))}
    assert shown == kinds


def error_classes() -> list[type[errors.RunnelError]]:
    members = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in members if issubclass(kind, errors.RunnelError)]


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_every_error_is_in_the_tree_and_in_the_reference(kind: type[errors.RunnelError]) -> None:
    assert re.search(rf"\b{kind.__name__}\b", errors.__doc__ or "")
    assert f"| `{kind.__name__}` |" in (REFERENCE / "errors.md").read_text("utf-8")


def test_every_command_option_and_exit_code_is_in_the_reference() -> None:
    page = (REFERENCE / "commands.md").read_text("utf-8")
    group: Any = typer.main.get_command(app)
    assert {name.split()[0] for name in commands()} == set(group.commands)
    for name, command in commands().items():
        section = re.search(rf"^## runnel {name}\n(.*?)(?=^## )", page, re.DOTALL | re.MULTILINE)
        assert section, f"the command {name} is not in the reference"
        for parameter in command.params:
            shown = parameter.opts if parameter.param_type_name == "option" else [parameter.name]
            for value in shown:
                assert f"`{value}`" in section.group(1), f"{name}: {value} is not in the reference"
            assert parameter.help, f"{name}: {shown[0]} has no help"
        assert f"Example: `runnel {name}" in section.group(1) or f"runnel {name} " in section.group(1)
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page


def test_every_output_is_in_the_reference() -> None:
    page = (REFERENCE / "formats.md").read_text("utf-8")
    ours = [entry for entry in entry_points(group="runnel.sinks") if entry.value.startswith("runnel.")]
    assert ours
    for entry in ours:
        assert f"| `{entry.name}` |" in page


LIMITS = {
    "text of one value": item.MAX_TEXT,
    "values of one item": item.MAX_VALUES,
    "name of an attribute": item.MAX_NAME,
    "id of an item": item.MAX_ID,
    "RDF graph of an item": graph.MAX_TRIPLES,
    "tree of an item": document_tree.MAX_NODES,
    "tree pattern": tree_steps.MAX_STEPS,
    "nested parentheses": nesting.MAX_NESTING,
    "rows of one answer": check_answers.MAX_ROWS,
    "bindings kept with a match": bindings.MAX_ROWS,
    "solutions of a graph pattern that are searched for bindings": find_solutions.MAX_SOLUTIONS,
    "solutions of a tree pattern that are searched for bindings": tree_part.MOST_SOLUTIONS,
    "signing keys of a subscription": signing_keys.MAX_KEYS,
    "joins of a query": parse_joins.MAX_JOINS,
    "candidates of a join": find_pairs.MAX_CANDIDATES,
    "joined items kept with a match": resolve_joins.MAX_ANNOTATION,
    "redirects": http_client.MAX_REDIRECTS,
    "URL": urls.MAX_URL,
}


@pytest.mark.parametrize("what", LIMITS)
def test_documented_limits_are_those_of_the_code(what: str) -> None:
    page = (REFERENCE / "limits.md").read_text("utf-8")
    row = re.search(rf"^\| {re.escape(what)} \| (.*) \|$", page, re.MULTILINE)
    assert row, f"the limits lack: {what}"
    assert re.match(rf"{LIMITS[what]:,}\b", row[1])


def test_documented_limits_show_the_defaults_of_settings() -> None:
    page = (REFERENCE / "limits.md").read_text("utf-8")
    named = re.findall(r"`(\w+)` \(([\d,]+)(?: ([GM])iB)?\)", page)
    assert len(named) > 25
    for name, number, unit in named:
        default = Settings.model_fields[name].default
        shown = int(number.replace(",", "")) * {"": 1, "M": 1 << 20, "G": 1 << 30}[unit]
        assert shown == (len(default) if isinstance(default, tuple) else default), name


# --- the reference is fresh --------------------------------------------------------------------------------------


def test_generated_reference_pages_are_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "make_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stale_page_is_reported_with_the_command_that_updates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", docs)
    page = docs / "reference" / "settings.md"
    page.write_text(page.read_text("utf-8").replace("lag_limit", "lag_limitation"), "utf-8")
    assert make_reference.stale(docs) == ["reference/settings.md"]

    (page.parent / "gone.md").write_text(f"# A page of a removed feature\n\n{NOTE}\n", "utf-8")
    (docs / "decisions" / "index.md").unlink()
    monkeypatch.setattr(make_reference.stale, "__defaults__", (docs,))
    assert make_reference.main(["--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "stale: docs/decisions/index.md, docs/reference/gone.md, docs/reference/settings.md",
        "run: make docs",
    ]


RECORD = "# 7. A title\n\nDate: 2026-11-18 · Area: delivery · Status: accepted\n\n**Context.** None.\n"


def test_decision_index_has_a_line_for_each_record(tmp_path: Path) -> None:
    records = reference_decisions.read_records()
    index = (ROOT / "docs" / "decisions" / "index.md").read_text("utf-8")
    assert {record.file for record in records} == {
        path.name for path in (ROOT / "docs" / "decisions").glob("*.md") if path.name != "index.md"
    }
    assert all(record.line in index for record in records)

    (tmp_path / "0007-a-title.md").write_text(RECORD.replace("accepted", "superseded by 8"), "utf-8")
    assert "- 7. [A title](0007-a-title.md) (superseded by 8)" in reference_decisions.decisions_index(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("0007-a-title.md", "# A title\n", "does not start with a title"),
        ("0007-a-title.md", RECORD.replace("delivery", "deliveries"), "unknown area"),
        ("0007-a-title.md", RECORD.replace("accepted", "perhaps"), "unknown status"),
        ("0008-a-title.md", RECORD, "contains record 7"),
    ],
)
def test_invalid_header_of_a_decision_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(ValueError, match=message):
        reference_decisions.read_records(tmp_path)


def test_two_decisions_with_the_same_number_are_refused(tmp_path: Path) -> None:
    for name in ("0007-a-title.md", "0007-another-title.md"):
        (tmp_path / name).write_text(RECORD, "utf-8")
    with pytest.raises(ValueError, match="same number"):
        reference_decisions.read_records(tmp_path)


@pytest.mark.parametrize("module", [reference_markdown], ids=lambda module: module.__name__)
def test_doctests_of_the_reference_generator_pass(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert (result.attempted > 0, result.failed) == (True, 0)


# --- links -------------------------------------------------------------------------------------------------------


def links_of(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "", text)
    return [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r"<img[^>]+src=\"([^\"]+)\"", text)]


def anchors_of(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_internal_links_resolve(page: Path) -> None:
    for link in links_of(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}, which is not there"
        assert target.is_relative_to(ROOT), f"{name_of(page)} links out of the project: {link}"
        assert not anchor or anchor in anchors_of(target), f"{name_of(page)}: no heading for {link}"


def reachable_from(start: Path) -> set[Path]:
    reached, waiting = set[Path](), [start.resolve()]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            targets = (link.partition("#")[0] for link in links_of(page) if not re.match(r"[a-z]+:", link))
            waiting += [(page.parent / target).resolve() for target in targets if target]
    return reached


def test_every_page_is_reachable_from_the_readme() -> None:
    assert {page.resolve() for page in PAGES} <= reachable_from(README)


def test_index_links_every_page_of_the_documentation() -> None:
    linked = {(INDEX.parent / link.partition("#")[0]).resolve() for link in links_of(INDEX)}
    records = {path.resolve() for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    assert {page.resolve() for page in (ROOT / "docs").rglob("*.md")} - records - {INDEX} <= linked


# --- code in the pages -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A Python block of a page, and the line on which its code begins."""

    page: str
    line: int
    source: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def needs_spark(self) -> bool:
        return self.source.startswith(NEEDS_SPARK)


def blocks_of(page: Path) -> list[Block]:
    blocks: list[Block] = []
    for match in re.finditer(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        line = match.string.count("\n", 0, match.start(1)) + 1
        blocks.append(Block(name_of(page), line, match.group(1)))
    return blocks


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PLAIN = [block for block in BLOCKS if not block.needs_spark]
WITH_SPARK = [block for block in BLOCKS if block.needs_spark]

_RUN_ALL = """
import json, sys
from pyspark.sql import SparkSession
for block in json.load(sys.stdin):
    print("block", block["place"], flush=True)
    lines = "\\n" * (block["line"] - 1)
    exec(compile(lines + block["source"], block["page"], "exec"), {"__name__": "__main__"})
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
print("all done", flush=True)
"""


@pytest.mark.parametrize("block", PLAIN, ids=lambda block: block.place)
def test_python_blocks_run(block: Block) -> None:
    exec(compile(block.source, block.place, "exec"), {"__name__": "__main__"})


@pytest.mark.spark
def test_python_blocks_that_need_spark_run() -> None:
    given = json.dumps([{**vars(block), "place": block.place} for block in WITH_SPARK])
    command = [sys.executable, "-c", _RUN_ALL]
    # As the page on DataFrames says: the workers of a session that is not Runnel's need to know the interpreter.
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=1200, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("block ") >= len(WITH_SPARK)
    assert done.stdout.endswith("all done\n")


def test_pages_have_blocks_with_and_without_spark_and_each_has_an_assertion() -> None:
    assert len(PLAIN) >= 4
    assert len(WITH_SPARK) >= 4
    for block in BLOCKS:
        tree = ast.walk(ast.parse(block.source))
        assert any(isinstance(node, ast.Assert) for node in tree), f"{block.place} asserts nothing"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("library.py", ["3 items matched, 1 messages delivered", "Cheap has item 2", "rock.xml has 2 entries"]),
        (
            "photos_for_news.py",
            [
                "n3: Live in Paris has the photos f1, m1",
                '>Muse live in Paris<br><img src="https://photos.example/m1.jpg"></a>',
            ],
        ),
        ("dataframe_api.py", ["Vinyl: 2 rows", "Bargains: 1 rows", "Christmas: 2 rows", "in no feed: 3"]),
        ("webhook_endpoint.py", ["waiting for confirmation: False", "feed.items: Muse on tour"]),
        ("mail_server.py", ["to me@mail.example: Muse on tour"]),
        ("web_feed.py", ["item 1: On tour"]),
    ],
)
def test_examples_run(script: str, expected: list[str], tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    for line in expected:
        assert line in done.stdout
    assert not list(tmp_path.glob("*.md"))


# --- the project's own promises ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["demo", "test"])
def test_make_commands_of_the_readme_are_targets(target: str) -> None:
    assert f"make {target}\n" in README.read_text("utf-8")
    rule = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert rule, f"the Makefile has no rule for {target}"


def folders() -> list[Path]:
    package = ROOT / "src" / "runnel"
    return sorted({path.parent for path in package.rglob("*.py")})


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.name)
def test_every_package_has_a_docstring(folder: Path) -> None:
    tree = ast.parse((folder / "__init__.py").read_text("utf-8"))
    assert ast.get_docstring(tree), f"{name_of(folder)}/__init__.py has no docstring"


HOW_IT_WORKS = ROOT / "docs" / "internals" / "how-it-works.md"
SOURCE = ROOT / "src" / "runnel"


def test_source_tree_lists_every_folder_of_the_source() -> None:
    tree = source_tree()
    for folder in folders():
        if folder.parent == SOURCE:
            assert re.search(rf"\b{folder.name}/", tree), f"the tree of the source lacks {folder.name}"


def test_source_tree_lists_only_existing_folders_and_files() -> None:
    lines = source_tree().splitlines()
    entries = [entry for line in lines for entry in line[:30].split() if entry.endswith(("/", ".py"))]
    assert len(entries) > 20
    assert [entry for entry in entries if not (SOURCE / entry).exists()] == []


def source_tree() -> str:
    tree = re.search(r"^src/runnel/\n(.*?)^```", HOW_IT_WORKS.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert tree
    return tree[1]


def file_of(module: str) -> Path | None:
    """Return the file of a module or package of this repository."""
    path = ROOT / "src" / module.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


@cache
def imports_of(path: Path) -> set[Path]:
    """Return our files that a file imports, at its top or inside a function, or names as `module:object`."""
    modules = set[str]()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            modules |= set(re.findall(r"^(runnel(?:\.\w+)+):\w+$", node.value))
    return {file for module in modules if module.startswith("runnel") and (file := file_of(module))}


def files_on_the_path(starts: list[Path]) -> set[str]:
    """Return the files, relative to the source folder, that the given files import, directly or through others."""
    reached, waiting = set[Path](), list(starts)
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += imports_of(path)
    return {path.relative_to(SOURCE).as_posix() for path in reached}


def plug_ins(*groups: str) -> list[Path]:
    """Return the files of built-in plug-ins, which are found by name and not by an import."""
    modules = {entry.module for group in groups for entry in entry_points(group=group)}
    return [file for module in sorted(modules) if module.startswith("runnel.") and (file := file_of(module))]


def section_of(page: Path, heading: str) -> str:
    results = re.search(rf"^## {heading}\n(.*?)(?=^## )", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert results, f"{name_of(page)} has no section {heading}"
    return results[1]


@pytest.mark.parametrize(
    ("heading", "starts", "groups"),
    [
        ("From a statement to the plan", ["engine/engine.py", "engine/declare/script.py"], []),
        (
            "From an item to a delivery",
            ["engine/run/runner.py", "engine/publish.py", "sources/document_child.py"],
            ["runnel.sources", "runnel.sinks"],
        ),
        ("Processes and threads", ["engine/engine.py"], []),
    ],
)
def test_files_named_in_how_it_works_are_on_the_described_path(
    heading: str, starts: list[str], groups: list[str]
) -> None:
    named = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", section_of(HOW_IT_WORKS, heading))
    assert named
    path = files_on_the_path([*(SOURCE / start for start in starts), *plug_ins(*groups)])
    assert [name for name in named if name not in path] == []


def test_matcher_that_is_only_a_plug_in_is_not_on_the_path() -> None:
    """The check above would detect a page that names the wrong matcher."""
    path = files_on_the_path([SOURCE / "engine" / "run" / "runner.py"])
    assert "matching/filters/streams/stream_matcher.py" in path
    assert "matching/filters/index/index_matcher.py" not in path
    assert "papers/roses/tree_matcher.py" not in path


SOURCES = sorted(
    path for folder in ("src", "tests", "benchmarks", "examples", "scripts") for path in (ROOT / folder).rglob("*.py")
)
FILES = {name_of(path) for path in SOURCES}
PACKAGES = {name_of(folder) for folder in folders()}


def prose_of(page: Path) -> str:
    """Return the text of a page, or the docstrings and comments of a program."""
    text = page.read_text("utf-8")
    if page.suffix == ".md":
        return text
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return "\n".join([*docstrings, *re.findall(r"^\s*#.*|  # .*", text, re.MULTILINE)])


def is_known_path(name: str) -> bool:
    """Return whether a name is the path of a file in the repository, or the end of one."""
    return any(path == name or path.endswith("/" + name) for path in FILES)


def is_known_module(name: str) -> bool:
    """Return whether a dotted name is a package, a module, or an object that a module defines."""
    for parts in (name.split("."), name.split(".")[:-1]):
        path = "src/" + "/".join(parts)
        if path in PACKAGES or path + ".py" in FILES:
            return True
    return False


def names_without_a_file(page: Path) -> list[str]:
    """Return the files (`….py`) and modules (`runnel.…`) that a page names in backticks but that do not exist."""
    names = re.findall(r"`([\w./-]+)`", prose_of(page))
    paths = [name for name in names if re.fullmatch(r"(?:[\w-]+/)*[a-z_]+\.py", name)]
    modules = [name for name in names if re.fullmatch(r"runnel(?:\.[a-z_]+){2,}", name)]
    return [
        *(name for name in paths if not is_known_path(name)),
        *(name for name in modules if not is_known_module(name)),
    ]


def test_files_and_modules_named_in_prose_exist(tmp_path: Path) -> None:
    missing = {name_of(page): names for page in [*PAGES, *SOURCES] if (names := names_without_a_file(page))}
    assert missing == {}

    page = tmp_path / "page.md"
    page.write_text(
        "See `matching/gone.py`, `runnel.gone.module`, `matching/contract.py` and `runnel.plan.store.load`."
    )
    assert names_without_a_file(page) == ["matching/gone.py", "runnel.gone.module"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_mention_nothing_outside_the_project(page: Path) -> None:
    text = page.read_text("utf-8")
    for word in ("TODO", "FIXME", "/home/"):
        assert word not in text
    assert text.startswith("# ") or page == README


# --- style ---------------------------------------------------------------------------------------------------------

AVOIDED = re.compile(
    r"\b(?:dear|dearest|anew|beside|for ever|in vain|whoever|nobody|somebody|anybody|put aside|mended"
    r"|looks? at|looked at|(?:is|are|was|were) told|the guarded door|the journal"
    r"|\w*(?:alis|imis|anis)(?:e|es|ed|ing|ation)|\w*(?:avi|neighb|hon|fav)our\w*|misspelt)\b",
    re.IGNORECASE,
)
"""Words to avoid and British spellings. American words that the pattern matches are in `FINE`."""

FINE = {"otherwise", "promise", "promises", "promised", "precise", "exercise", "advertise", "surprise", "analysis"}

BUDGETS = {"decisions": 170, "start": 1600, "guides": 1100, "operate": 1500, "reference": 2200, "internals": 2200}
"""The maximum number of words per page, by folder. A longer page should be split or shortened."""

CHANGELOG = ROOT / "CHANGELOG.md"
WRITTEN = [page for page in PAGES if not page.read_text("utf-8").endswith(f"{NOTE}\n")]


def words_of(page: Path) -> str:
    """Return the prose of a page, without code and quoted titles of papers."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`|\*\"[^\"]*\"\*", "", text)


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_pages_avoid_old_words_and_british_spelling(page: Path) -> None:
    texts = {match[0].lower() for match in AVOIDED.finditer(words_of(page))}
    assert texts - FINE == set()


@pytest.mark.parametrize("page", [page for page in WRITTEN if page != CHANGELOG], ids=name_of)
def test_pages_do_not_exceed_their_word_budget(page: Path) -> None:
    folder = page.relative_to(ROOT).parts[1:2] if page.is_relative_to(ROOT / "docs") else ()
    budget = BUDGETS.get(folder[0], 1500) if folder else 1500
    assert len(page.read_text("utf-8").split()) <= budget
