"""Generated weights of queries, with groups of any size, and different work, bytes and sources."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from runnel.arrays import Array, Rows
from runnel.scaleout.divide.weigh_queries import Weights


def weights_of(
    groups: Array,
    work: Array,
    sizes: Array,
    shares: Array,
    scopes: Rows | None = None,
    group_scopes: Array | None = None,
) -> Weights:
    """Return weights of queries with one target each, which is not shared, and one root per group."""
    count = len(groups)
    results = 0.5 * work
    rows = np.arange(count)
    return Weights(
        owners=np.arange(10, 10 + count),
        microseconds=work,
        bytes=sizes,
        groups=groups,
        order=np.argsort(np.argsort(groups, kind="stable"), kind="stable"),
        units=rows,
        own=work - results,
        shared=Rows(np.arange(count + 1), rows),
        shared_microseconds=results,
        roots=groups,
        root_shares=shares,
        root_scopes=np.zeros(len(shares), dtype=np.int64) if group_scopes is None else group_scopes,
        root_topics=np.full(len(shares), -1),
        root_keys=Rows(np.arange(len(shares) + 1), np.arange(len(shares))),
        topic_shares=np.empty(0),
        key_shares=np.minimum(1.0, shares),
        scopes=Rows.of([[1]], np.int64) if scopes is None else scopes,
    )


@st.composite
def generated_weights(draw: st.DrawFn) -> Weights:
    """Generate weights of some hundred queries: mostly similar, or with work that differs by a factor of thousand."""
    generator = np.random.default_rng(draw(st.integers(0, 2**20)))
    count = draw(st.integers(1, 400))
    wanted = draw(st.integers(1, count))
    _, groups = np.unique(generator.zipf(1.5, count) % wanted, return_inverse=True)
    spread = draw(st.sampled_from([0.0, 1.0, 3.0]))
    work, sizes = (np.exp(spread * generator.standard_normal(count)) for _ in range(2))
    shares = generator.random(int(groups.max()) + 1) ** draw(st.sampled_from([1, 4, 12]))
    sources = draw(st.integers(1, 4))
    scopes = Rows.of([[source] for source in range(sources)] + [list(range(sources))], np.int64)
    return weights_of(groups, work, 100.0 * sizes, shares, scopes, generator.integers(0, sources + 1, len(shares)))
