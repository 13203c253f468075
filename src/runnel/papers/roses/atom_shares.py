"""How often the atoms of a plan hold, from what was observed and, where that is little, from guesses."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array, Texts
from runnel.matching.filters.words.vocabulary import Vocabulary
from runnel.model.learned.stream_statistics import StreamSample


def atom_shares(atoms: Texts, guesses: Array, observed: StreamSample) -> Array:
    """The part of all items for which each atom, as it is stored, is expected to hold.

    >>> from runnel.model.learned.stream_statistics import ObservedShare
    >>> seen = StreamSample(100, {}, {"b": ObservedShare(980, 490)})
    >>> atom_shares(Texts.of(["a", "b"]), np.array([0.1, 0.01]), seen).round(4).tolist()
    [0.1, 0.4902]
    """
    known = list(observed.atoms)
    numbers = Vocabulary.of(known).find_all(atoms)
    shares = np.array(guesses, dtype=np.float64)
    for atom in np.flatnonzero(numbers >= 0).tolist():
        shares[atom] = observed.share(known[numbers[atom]], float(guesses[atom]))
    return shares
