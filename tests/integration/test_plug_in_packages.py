"""The example packages of plug-ins, installed with pip and run end to end in separate processes."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ("plug-in-family", "plug-in-operator", "plug-in-sink", "plug-in-source")
PAGES = {
    "write-a-sink.md": "plug-in-sink/src/runnel_sqlite_sink/__init__.py",
    "write-a-source.md": "plug-in-source/src/runnel_mbox/__init__.py",
}
MAIL = "From ann Sun Nov 15 09:30:00 2026\nMessage-ID: <{id}@mail.example>\nSubject: {title}\nFrom: Ann\n\nhello\n\n"
RUN = """
import sys
import runnel

workspace, mails, paint = sys.argv[1:]
with runnel.connect(workspace) as engine:
    if not engine.workspace.out.joinpath("loud.db").exists():
        engine.execute(f'''
            register operator shouted from 'shouted';
            register feed 'mbox://{mails}' as Mails;
            create feed Loud from Mails where shouted(title, ?words) and ?words > 1;
            subscribe to Loud output sqlite 'loud.db';
            register feed '{paint}' as Paint;
            create feed Red from Paint where color {{ red >= 200 ?shade }};
            subscribe to Red output sqlite 'red.db';
        ''')
    engine.run(once=True)
    assert engine.status().messages.keys() == {"done"}, engine.status().messages
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example packages, installed by pip without a network, and a package without its code."""
    folder = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(folder)]
    packages = [str(ROOT / "examples" / name) for name in EXAMPLES]
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *options, *packages]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    broken = folder / "runnel_broken-1.0.dist-info"
    broken.mkdir()
    broken.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: runnel-broken\nVersion: 1.0\n")
    broken.joinpath("entry_points.txt").write_text("[runnel.families]\nbroken = runnel_broken:FAMILY\n")
    return folder


def run(program: str, installed: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def test_installed_packages_offer_their_plug_ins(installed: Path) -> None:
    program = """
from runnel.families import registry
from runnel.matching.operators.plugins.registry import operator_names
from runnel.sinks.registry import installed_sinks
from runnel.sources.registry import installed_sources

print(*operator_names(), *(sink.kind for sink in installed_sinks()), *installed_sources(), *registry().families)
"""
    results = run(program, installed).split()
    assert {"shouted", "sqlite", "mbox", "color"} <= set(results)
    assert results.index("mbox") > results.index("web"), "those that come with Runnel are first"


def test_sandboxes_read_the_values_of_a_plug_in(installed: Path) -> None:
    program = """
from runnel.sources.document_child import DocumentSource
from runnel.sources.document_pool import document_pool

read = document_pool().read(b'{"id": "a", "color": "#FF0000"}', DocumentSource("a.jsonl", "Paint"))
print(repr(read.items[0].attributes["color"][0]))
"""
    assert run(program, installed).strip() == "Color('#ff0000')"


@pytest.mark.spark
def test_plug_ins_of_every_group_work_from_end_to_end(installed: Path, tmp_path: Path) -> None:
    mails = tmp_path / "mails"
    mails.write_text("".join(MAIL.format(id=text, title=text) for text in ("quiet", "ROCK", "ROCK AND ROLL")))
    paint = tmp_path / "paint"
    paint.mkdir()
    paint.joinpath("one.jsonl").write_text('{"id": "red", "color": "#FF0000"}\n{"id": "blue", "color": "#0000ff"}\n')
    run(RUN, installed, str(tmp_path / "root"), str(mails), str(paint))
    with mails.open("a") as file:
        file.write(MAIL.format(id="more", title="VERY LOUD"))
    paint.joinpath("two.jsonl").write_text('{"id": "rose", "color": "#ff007f"}\n{"id": "text", "title": "#ff0000"}\n')
    run(RUN, installed, str(tmp_path / "root"), str(mails), str(paint))
    with sqlite3.connect(tmp_path / "root" / "out" / "loud.db") as database:
        rows = database.execute("select title, version from items order by rowid").fetchall()
    assert rows == [("ROCK AND ROLL", 1), ("VERY LOUD", 1)]
    with sqlite3.connect(tmp_path / "root" / "out" / "red.db") as database:
        rows = database.execute("select id from items order by rowid").fetchall()
    assert rows == [("red",), ("rose",)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_the_code_of_its_example(page: str) -> None:
    text = (ROOT / "docs" / "guides" / page).read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    code = (ROOT / "examples" / PAGES[page]).read_text("utf-8")
    assert any(block.startswith(code) for block in blocks)
