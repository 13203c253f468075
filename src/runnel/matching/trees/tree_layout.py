"""The arrays of a plan part's tree patterns, which are built at compile time and mapped by every worker.

In: patterns. Out: a `TreeLayout` with the steps and programs of all patterns, and an index of the patterns by their
rarest required feature.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.arrays import IDENTIFIER, Array, Arrays, Rows, Texts, read_only
from runnel.matching.trees.step_programs import ANY_ATTRIBUTE, Compiler, Feature, Op, PatternCode, StepCode
from runnel.matching.trees.tree_kernel import PlanArrays, max_height
from runnel.plan.validate import check_ids, check_rows, check_texts

_NAME = "tree"


def feature_word(label: str, text: str | None = None) -> str:
    """Return the word under which stream statistics count a label, or a label with a text. No text has such words.

    >>> feature_word("/tag", "ski")
    ' /tag=ski'
    """
    return f" {label}" if text is None else f" {label}={text}"


@dataclass(frozen=True)
class TreeLayout:
    """The arrays: `steps` has the label and namespace of every step, `features` the label, parent and text of every
    feature. `anchors` are the features under which the patterns are indexed, or -1, and `required` the other features
    of each pattern. The keys of `encoded` patterns are in `keys`."""

    labels: Texts
    namespaces: Texts
    texts: Texts
    numbers: Array
    steps: Array
    step_programs: Rows
    pattern_steps: Rows
    programs: Rows
    features: Array
    anchors: Array
    required: Rows
    approximate: Array
    keys: Array
    encoded: Texts

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def of(
        patterns: Sequence[TreePattern], keys: Array | None = None, frequencies: Mapping[str, float] | None = None
    ) -> TreeLayout:
        """Build the layout. By default, the key of a pattern is its position."""
        compiler = Compiler()
        codes = [compiler.compile(pattern) for pattern in patterns]
        features = {feature: None for code in codes for feature in code.features}
        numbers = {feature: number for number, feature in enumerate(features)}
        ranks = _rank_features(codes, compiler, frequencies or {})
        ordered = [sorted(code.features, key=lambda feature: ranks[feature]) for code in codes]
        steps = list(compiler.steps)
        return TreeLayout(
            labels=Texts.of(compiler.labels),
            namespaces=Texts.of(compiler.namespaces),
            texts=Texts.of(compiler.texts),
            numbers=np.array(list(compiler.numbers), dtype=np.float64),
            steps=_step_names(steps),
            step_programs=Rows.of([step.program for step in steps]),
            pattern_steps=Rows.of([[2 * step + is_required for step, is_required in code.steps] for code in codes]),
            programs=Rows.of([code.program for code in codes]),
            features=_feature_rows(list(features)),
            anchors=np.array([numbers[each[0]] if each else -1 for each in ordered], dtype=IDENTIFIER),
            required=Rows.of([[numbers[feature] for feature in each[1:]] for each in ordered]),
            approximate=np.array([code.is_approximate for code in codes], dtype=np.uint8),
            keys=(np.arange(len(codes)) if keys is None else keys).astype(IDENTIFIER),
            encoded=Texts.of(json.dumps(pattern.encode()) for pattern in patterns),
        )

    @property
    def counters(self) -> dict[str, int]:
        """The numbers of patterns, of steps without repetitions, and of patterns that are tried on every tree."""
        unanchored = int(np.sum(self.anchors < 0))
        return {"tree patterns": len(self), "tree steps": len(self.steps), "unanchored tree patterns": unanchored}

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that are read for every item, by the names under which they are stored."""
        arrays = {f"{_NAME}.{field}": getattr(self, field).reshape(-1) for field in _PLAIN}
        for field in (*_ROWS, *_TEXTS):
            arrays |= getattr(self, field).arrays(f"{_NAME}.{field}")
        return arrays

    def seldom(self) -> dict[str, Array]:
        """Return the arrays that are read only for bindings and for approximate patterns."""
        return self.encoded.arrays(f"{_NAME}.encoded")

    @staticmethod
    def stored(arrays: Arrays, keys: int) -> TreeLayout:
        """Build the layout from stored arrays, and check it. Raise ValueError if an array does not fit the others."""
        plain: dict[str, Any] = {field: arrays[f"{_NAME}.{field}"] for field in _PLAIN}
        for field, width in (("steps", 2), ("features", 3)):
            if len(plain[field]) % width:
                raise ValueError(f"{_NAME}.{field} is incomplete")
            plain[field] = plain[field].reshape(-1, width)
        rows: dict[str, Any] = {field: Rows.stored(arrays, f"{_NAME}.{field}") for field in _ROWS}
        texts: dict[str, Any] = {field: Texts.stored(arrays, f"{_NAME}.{field}") for field in (*_TEXTS, "encoded")}
        layout = TreeLayout(**plain, **rows, **texts)
        layout._check(keys)
        return layout

    @staticmethod
    def is_stored(arrays: Arrays) -> bool:
        """Return whether the arrays contain tree patterns."""
        return f"{_NAME}.anchors" in arrays

    def _check(self, keys: int) -> None:
        labels, patterns, features = len(self.labels), len(self), len(self.features)
        for field in (*_TEXTS, "encoded"):
            check_texts(f"{_NAME}.{field}", getattr(self, field))
        check_ids(f"{_NAME}.keys", self.keys, 0, keys, patterns)
        check_ids(f"{_NAME}.steps", self.steps[:, 0], ANY_ATTRIBUTE, labels, len(self.steps))
        check_ids(f"{_NAME}.steps", self.steps[:, 1], -1, len(self.namespaces), len(self.steps))
        check_rows(f"{_NAME}.step_programs", self.step_programs, None, len(self.steps))
        check_rows(f"{_NAME}.pattern_steps", self.pattern_steps, 2 * len(self.steps), patterns)
        check_rows(f"{_NAME}.programs", self.programs, None, patterns)
        check_ids(f"{_NAME}.features", self.features[:, 0], 0, labels, features)
        check_ids(f"{_NAME}.features", self.features[:, 1], -1, labels, features)
        check_ids(f"{_NAME}.features", self.features[:, 2], -1, len(self.texts), features)
        check_ids(f"{_NAME}.anchors", self.anchors, -1, features, patterns)
        check_rows(f"{_NAME}.required", self.required, features, patterns)
        check_ids(f"{_NAME}.approximate", self.approximate, 0, 2, patterns)
        if len(self.encoded) != patterns:
            raise ValueError(f"{_NAME}.encoded must contain exactly {patterns} texts")
        _ = self.height

    @cached_property
    def height(self) -> int:
        """The largest height of the stack of a program. Raise ValueError if a program is not valid."""
        texts, numbers = len(self.texts), len(self.numbers)
        heights = []
        for name, rows, most, is_document in (
            ("step_programs", self.step_programs, np.arange(len(self.steps)), False),
            ("programs", self.programs, np.full(len(self), len(self.steps)), True),
        ):
            arrays = read_only(rows.offsets), read_only(rows.values), most.astype(np.int64)
            height = max_height(*arrays, texts, numbers, is_document)
            if height < 0:
                raise ValueError(f"{_NAME}.{name} has an invalid program")
            heights.append(int(height))
        return max(heights)

    @cached_property
    def plan_arrays(self) -> PlanArrays:
        """The arrays for the kernel. Features are looked up by sorted keys of two numbers."""
        labels, parents, texts = self.features.T
        label_features = np.full(len(self.labels), -1, dtype=IDENTIFIER)
        alone = np.flatnonzero((parents < 0) & (texts < 0))
        label_features[labels[alone]] = alone
        pairs, valued = np.flatnonzero(parents >= 0), np.flatnonzero(texts >= 0)
        pair_keys, pair_features = _sorted_keys(parents[pairs], labels[pairs], pairs)
        text_keys, text_features = _sorted_keys(labels[valued], texts[valued], valued)
        anchored = np.flatnonzero(self.anchors >= 0)
        buckets = Rows.grouped(self.anchors[anchored], anchored.astype(IDENTIFIER), len(self.features))
        arrays = PlanArrays(
            steps=self.steps,
            step_offsets=self.step_programs.offsets,
            step_ops=self.step_programs.values,
            pattern_offsets=self.pattern_steps.offsets,
            pattern_steps=self.pattern_steps.values,
            program_offsets=self.programs.offsets,
            programs=self.programs.values,
            constants=self.numbers,
            label_features=label_features,
            pair_keys=pair_keys,
            pair_features=pair_features,
            text_keys=text_keys,
            text_features=text_features,
            bucket_offsets=buckets.offsets,
            buckets=buckets.values,
            required_offsets=self.required.offsets,
            required=self.required.values,
            unanchored=np.flatnonzero(self.anchors < 0).astype(IDENTIFIER),
        )
        return PlanArrays(*(read_only(np.ascontiguousarray(array)) for array in arrays))

    @cached_property
    def compared_labels(self) -> tuple[Array, bool, bool]:
        """For every label whether its nodes are compared, and the same for all elements and all attributes."""
        tests = (Op.TEXT, Op.EQUAL, Op.LESS, Op.AT_MOST, Op.GREATER, Op.AT_LEAST)
        owners, values = self.step_programs.expand(np.arange(len(self.steps)))
        starts = self.step_programs.offsets[owners]
        is_operation = (np.arange(len(values)) - starts) % 2 == 0
        testing = np.unique(owners[is_operation & np.isin(values, tests)])
        names = self.steps[testing, 0]
        compared = np.zeros(len(self.labels), dtype=np.bool_)
        compared[names[names >= 0]] = True
        return compared, bool(np.any(names == -1)), bool(np.any(names == ANY_ATTRIBUTE))


_PLAIN = ("numbers", "steps", "features", "anchors", "approximate", "keys")
_ROWS = ("step_programs", "pattern_steps", "programs", "required")
_TEXTS = ("labels", "namespaces", "texts")


def _step_names(steps: Sequence[StepCode]) -> Array:
    return np.array([(step.label, step.namespace) for step in steps], dtype=IDENTIFIER).reshape(-1, 2)


def _feature_rows(features: Sequence[Feature]) -> Array:
    rows = [(feature.label, feature.parent, feature.text) for feature in features]
    return np.array(rows, dtype=IDENTIFIER).reshape(-1, 3)


def _sorted_keys(first: Array, second: Array, features: Array) -> tuple[Array, Array]:
    keys = first.astype(np.int64) << 32 | second.astype(np.int64)
    order = np.argsort(keys, kind="stable")
    return keys[order], features[order].astype(IDENTIFIER)


def _rank_features(
    codes: Sequence[PatternCode], compiler: Compiler, frequencies: Mapping[str, float]
) -> dict[Feature, tuple[float, int, int]]:
    """Return a rank for every feature; rarer ones have lower ranks.

    Known shares of trees decide first, then texts come before pairs and pairs before labels, and then features that
    fewer patterns require.
    """
    labels, texts = list(compiler.labels), list(compiler.texts)
    counts = Counter(feature for code in codes for feature in code.features)

    def rank(feature: Feature) -> tuple[float, int, int]:
        text = texts[feature.text] if feature.text >= 0 else None
        share = frequencies.get(feature_word(labels[feature.label], text), 0.0)
        if feature.parent >= 0:
            share = min(share, frequencies.get(feature_word(labels[feature.parent]), 0.0))
        kind = 0 if feature.text >= 0 else 1 if feature.parent >= 0 else 2
        return share, kind, counts[feature]

    return {feature: rank(feature) for feature in counts}
