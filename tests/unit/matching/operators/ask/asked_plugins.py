"""Plug-ins for tests: modules in a folder of their own, with functions and classes that behave well or badly."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from runnel.model.operator import Budget, OperatorDeclaration, Parameter, ValueType

VISION = '''
import os, signal, subprocess, sys, time
from pathlib import Path
from runnel.matching.operators.plugins.contract import FailedCall
from runnel.model.operator import HOLDS

def echo(attributes, *inputs):
    return [str(one) for one in attributes.get("title", ())] + [str(one) for one in inputs]

def count(attributes):
    return len(attributes.get("title", ()))

def process(attributes):
    return os.getpid()

def surroundings(attributes):
    """What a process that it starts inherits, and how its own interpreter was started."""
    descriptors = subprocess.run(["ls", "/proc/self/fd"], capture_output=True, close_fds=False, text=True).stdout
    return [f"descriptors {' '.join(descriptors.split())}", f"no_site {sys.flags.no_site}", os.getcwd()]

def has_title(attributes):
    return "title" in attributes

def moody(attributes, folder=None):
    """Does what the item says."""
    for mood in attributes.get("mood", ()):
        match mood:
            case "raise":
                raise ValueError("a bad day")
            case "loop":
                while True:
                    pass
            case "sleep":
                time.sleep(60)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                print("gone fishing", file=sys.stderr, flush=True)
                os._exit(3)
            case "say":
                print("gone swimming", flush=True)
                os._exit(4)
            case "memory":
                kept = bytearray(8 << 30)
                return len(kept)
            case "print":
                print("x" * 200_000)
                sys.stderr.write("y" * 200_000)
            case "text":
                return "text"
            case "object":
                return [object()]
            case "many":
                return (float(number) for number in range(10**9))
            case "large":
                return ["z" * (1 << 20)] * 100
    return 1.0

def once(attributes, folder):
    """Is ended the first time, and then never again."""
    mark = Path(folder) / "once"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 1.0

def slow(attributes, folder):
    """Says when it began and ended."""
    began = time.time()
    time.sleep(0.3)
    return (began, time.time())

class Batches:
    """Says how many were asked together, and by which process."""
    batch = 7
    def __init__(self, place):
        self.place = place
    def answer(self, calls):
        return [[(len(calls), os.getpid())] for call in calls]

class Place:
    def __init__(self, place):
        self.place = place
    def answer(self, calls):
        place = self.place
        told = [repr(sorted(os.environ)), repr(dict(place.configuration)), repr(dict(place.databases))]
        told.append(str(place.folder))
        return [[(one,) for one in told] for call in calls]

class Broken:
    def __init__(self, place):
        pass
    def answer(self, calls):
        if any("poison" in call.attributes for call in calls):
            raise RuntimeError("poisoned")
        return [FailedCall("no model", False) if "none" in call.attributes else HOLDS for call in calls]

class Short:
    def __init__(self, place):
        pass
    def answer(self, calls):
        return []

class Unmade:
    def __init__(self, place):
        raise FileNotFoundError("no such model")

class Liar:
    """Writes onto whatever descriptor might lead to the worker."""
    def __init__(self, place):
        pass
    def answer(self, calls):
        for descriptor in range(3, 20):
            try:
                os.write(descriptor, b"\\xff" * 64)
            except OSError:
                pass
        return [HOLDS for call in calls]
'''


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on Python's path with the module `city.vision`, and a module that must never be imported."""
    package = tmp_path / "plugins" / "city"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "vision.py").write_text(VISION)
    (package / "described.py").write_text(
        "from datetime import timedelta\n"
        "from os import system\n"
        "from runnel.model.operator import Parameter\n"
        "class Mob:\n"
        "    parameters = (Parameter('place', 'input'), Parameter('people', 'result', 'int'))\n"
        "    cost = timedelta(milliseconds=40)\n"
        "    pure = False\n"
        "    batch = 5\n"
        "    reads = ('picture',)\n"
        "    def __init__(self, context): pass\n"
        "    def answer(self, calls): return []\n"
        "class Wrong(Mob):\n"
        "    batch = 'many'\n"
    )
    (package / "failing.py").write_text("raise RuntimeError('not today')\n")
    (tmp_path / "plugins" / "mine.py").write_text(
        f"open({str(tmp_path / 'touched')!r}, 'w')\ndef run(a): return True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "plugins"))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("city", "mine")]:
        del sys.modules[name]


def declared(
    function: str,
    *results: ValueType,
    pure: bool = True,
    batch: int = 64,
    limit: float = 20.0,
    concurrency: int = 1,
    budget: Budget | None = None,
    inputs: int = 0,
    reads: tuple[str, ...] = (),
    version: int = 1,
    release: str = "",
    configuration: tuple[tuple[str, str], ...] = (),
) -> OperatorDeclaration:
    """The registration of a function of `city.vision`, under its own name."""
    given = tuple(Parameter(f"i{number}", "input") for number in range(inputs))
    given += tuple(Parameter(f"r{number}", "result", kind) for number, kind in enumerate(results))
    return OperatorDeclaration(
        function,
        version,
        f"city.vision:{function}",
        given,
        release=release,
        pure=pure,
        reads=reads,
        batch=batch,
        time_limit=timedelta(seconds=limit),
        concurrency=concurrency,
        budget=budget or Budget(),
        configuration=configuration,
    )
