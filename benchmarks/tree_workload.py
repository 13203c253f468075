"""Generated documents and tree patterns: names in a random schema, values from a fixed number of texts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property

from runnel.algebra.trees.steps import Axis, NameTest, Step, TreeCondition, ValueTest, all_of
from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.model.trees.document_tree import DocumentTree

_CHILDREN = 5
_MAX_DEPTH = 9


@dataclass(frozen=True)
class TreeWorkload:
    """A schema of `names`, each with five possible children, documents of about `nodes` elements, and patterns of two
    to five steps. A share of the patterns compares the last element with one of `values` texts, and a share of the
    steps has another child in brackets."""

    patterns: int
    documents: int
    nodes: int = 650
    names: int = 60
    values: int = 1_000
    compared: float = 0.7
    bracketed: float = 0.4
    below: float = 0.3
    seed: int = 1

    @cached_property
    def schema(self) -> dict[str, list[str]]:
        """The possible children of every name."""
        chance = random.Random(self.seed)
        names = [f"n{number}" for number in range(self.names)]
        return {name: chance.sample(names, _CHILDREN) for name in names}

    def make_documents(self) -> list[DocumentTree]:
        """Generate the documents."""
        chance = random.Random(self.seed + 1)
        return [DocumentTree.read(_DocumentWriter(self, chance).write()) for _ in range(self.documents)]

    def make_patterns(self) -> list[TreePattern]:
        """Generate patterns that differ, in canonical form."""
        chance = random.Random(self.seed + 2)
        patterns: dict[TreePattern, None] = {}
        while len(patterns) < self.patterns:
            patterns[self._make_pattern(chance).canonical()] = None
        return list(patterns)

    def text(self, chance: random.Random) -> str:
        """Choose one of the values."""
        return f"v{chance.randrange(self.values)}"

    def _make_pattern(self, chance: random.Random) -> TreePattern:
        names = ["n0"]
        for _ in range(chance.randrange(1, 5)):
            names.append(chance.choice(self.schema[names[-1]]))
        condition: TreeCondition | None = None
        if chance.random() < self.compared:
            condition = ValueTest("=", (self.text(chance),))
        for position, name in reversed(list(enumerate(names))):
            parts: list[TreeCondition] = [condition] if condition is not None else []
            if position < len(names) - 1 and chance.random() < self.bracketed:
                parts.insert(0, Step("/", NameTest(chance.choice(self.schema[name]))))
            axis: Axis = "//" if not position or chance.random() < self.below else "/"
            condition = Step(axis, NameTest(name), (), all_of(tuple(parts)))
        assert condition is not None
        return TreePattern(condition)


class _DocumentWriter:
    """Writes one document of at least 80 percent of the wanted size."""

    def __init__(self, workload: TreeWorkload, chance: random.Random) -> None:
        self._workload, self._chance = workload, chance
        self._nodes = 0

    def write(self) -> str:
        """Return the text."""
        while True:
            self._nodes = 0
            text = self._element("n0", 0)
            if self._nodes >= 0.8 * self._workload.nodes:
                return text

    def _element(self, name: str, depth: int) -> str:
        self._nodes += 1
        chance = self._chance
        parts = [self._workload.text(chance) if chance.random() < 0.5 else ""]
        wanted = chance.randrange(1, 4)
        while wanted and depth < _MAX_DEPTH and self._nodes < self._workload.nodes:
            parts.append(self._element(chance.choice(self._workload.schema[name]), depth + 1))
            wanted -= 1
        return f"<{name}>{''.join(parts)}</{name}>"


def xpath_of(condition: TreeCondition) -> str:
    """Return the XPath predicate of a condition of this workload."""
    match condition:
        case Step(axis, test, _, inner):
            parts = () if inner is None else inner.parts if hasattr(inner, "parts") else (inner,)
            predicates = "".join(f"[{xpath_of(part)}]" for part in parts)
            return f"{'./' if axis == '/' else './/'}{test.name}{predicates}"
        case ValueTest(_, (value,)):
            return f"normalize-space(.)='{value}'"
    raise ValueError(f"the workload has no such condition: {condition}")
