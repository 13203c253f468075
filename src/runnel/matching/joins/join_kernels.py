"""Kernels of joins: look up words and terms in parts of window items, and find and check pairs of items.

In: texts of items as distinct words, and the arrays of `WordIndex` and `TermIndex`. Out: pairs as two arrays, the
numbers of items and the rows of window items. Every pair is checked exactly: signatures only exclude.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from runnel.kernel import Number, count_bits, kernel, step

Array = Any

LONG = 63
"""Texts of at least this many distinct words have this length in a mark (see `word_index.marks_of`)."""

LENGTH_BITS = 6
MARK_BITS = 26
"""A mark has the length of a text in its low bits, and a signature of its words above them."""

_LENGTH_MASK = np.uint64(63)
_MULTIPLIER = np.uint64(0x9E3779B1)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


@kernel
def find_texts(sought_offsets: Array, sought: Array, offsets: Array, data: Array) -> Array:
    """Return the position of each sought text among texts in ascending order of bytes, or -1."""
    found = np.empty(len(sought_offsets) - 1, dtype=np.int32)
    for number in range(len(found)):
        start, stop = np.int64(sought_offsets[number]), np.int64(sought_offsets[number + 1])
        found[number] = -1
        low, high = np.int64(0), np.int64(len(offsets) - 1)
        while low < high:
            middle = (low + high) >> 1
            first, last = np.int64(offsets[middle]), np.int64(offsets[middle + 1])
            order = np.int64(0)
            for position in range(min(stop - start, last - first)):
                order = np.int64(data[first + position]) - np.int64(sought[start + position])
                if order != 0:
                    break
            if order == 0:
                order = (last - first) - (stop - start)
            if order == 0:
                found[number] = middle
                break
            if order < 0:
                low = middle + 1
            else:
                high = middle
    return found


@step
def _signature_bit(token: Number, bits: Number) -> Number:
    """Return the bit of a word in signatures of `bits` bits (see `word_index.signatures_of`)."""
    mixed = (np.uint64(token) * _MULTIPLIER) & _LOW_HALF
    return _ONE << ((mixed * np.uint64(bits)) >> _HALF)


@step
def _least_common(size: Number, other: Number, numerator: Number, denominator: Number) -> Number:
    """Return the minimum number of common words of two similar texts with these numbers of words."""
    return (numerator * (size + other) + numerator + denominator - 1) // (numerator + denominator)


@step
def _known_tokens(words: Array, start: Number, stop: Number, ranks: Array, tokens: Array) -> Number:
    """Write the ranks of the known words of a text to `tokens`, in ascending order. Return their number."""
    known = 0
    for position in range(start, stop):
        token = ranks[words[position]]
        if token >= 0:
            tokens[known] = token
            known += 1
    tokens[:known].sort()
    return known


@step
def _count_common(
    tokens: Array, known: Number, texts: Array, start: Number, stop: Number, least: Number, first: Number
) -> Number:
    """Return the number of common words, -1 if it is below `least`, or -2 if the rarest one is not `first`."""
    common, left, right = 0, 0, start
    while left < known and right < stop:
        if common + min(known - left, stop - right) < least:
            return -1
        a, b = tokens[left], np.int64(texts[right])
        if a == b:
            if common == 0 and first >= 0 and a != first:
                return -2
            common += 1
            left += 1
            right += 1
        elif a < b:
            left += 1
        else:
            right += 1
    return common if common >= least else -1


@kernel
def similar_pairs(
    owners: Array,
    offsets: Array,
    words: Array,
    ranks: Array,
    numerator: Number,
    denominator: Number,
    bounds: Array,
    counts: Array,
    limit: Number,
    text_rows: Array,
    text_offsets: Array,
    text_tokens: Array,
    text_signatures: Array,
    posting_offsets: Array,
    posting_texts: Array,
    posting_marks: Array,
) -> tuple[Array, Array]:
    """Return the pairs of an item's text and a row's text that have at least the similarity of the fraction.

    The texts of items are rows of `offsets` and `words`; `ranks` has the rank of each word by rarity in the part, or
    -1. `bounds` has for each item the first row that is not earlier. The texts that are compared with an item are
    added to its number in `counts`; an item with more than `limit` gets no further pairs.

    Both texts have a word of their prefixes in common: the rarest words of a text up to the number that a similar
    text need not contain, plus one. A pair is counted at its rarest common word. Marks and signatures exclude most
    texts without reading them.
    """
    found, size_of = 0, 64
    items, rows = np.empty(size_of, dtype=np.int64), np.empty(size_of, dtype=np.int64)
    longest = 1
    for text in range(len(owners)):
        longest = max(longest, offsets[text + 1] - offsets[text])
    tokens = np.empty(longest, dtype=np.int64)
    needs = np.empty(LONG, dtype=np.int64)
    for text in range(len(owners)):
        owner = owners[text]
        size = offsets[text + 1] - offsets[text]
        if size == 0 or counts[owner] > limit:
            continue
        known = _known_tokens(words, offsets[text], offsets[text + 1], ranks, tokens)
        lowest = (numerator * size + denominator - 1) // denominator
        highest = denominator * size // numerator
        signature, short = np.uint64(0), np.uint64(0)
        for position in range(known):
            signature |= _signature_bit(tokens[position], 64)
            short |= _signature_bit(tokens[position], MARK_BITS)
        short <<= np.uint64(LENGTH_BITS)
        # Words that share a bit may all be common.
        spare, short_spare = known - count_bits(signature), known - count_bits(short)
        for length in range(lowest, min(highest + 1, LONG)):
            needs[length] = _least_common(size, length, numerator, denominator)
        for position in range(known - lowest + 1):  # the words that the part does not contain come first
            token = tokens[position]
            for posting in range(np.int64(posting_offsets[token]), np.int64(posting_offsets[token + 1])):
                mark = np.uint64(posting_marks[posting])
                other_size = np.int64(mark & _LENGTH_MASK)
                if other_size < LONG and (
                    other_size < lowest
                    or other_size > highest
                    or count_bits(mark & short) + short_spare < needs[other_size]
                ):
                    continue
                other = np.int64(posting_texts[posting])
                start, stop = np.int64(text_offsets[other]), np.int64(text_offsets[other + 1])
                row = np.int64(text_rows[other]) if len(text_rows) else other
                if row >= bounds[owner]:
                    break
                least = _least_common(size, stop - start, numerator, denominator)
                if stop - start > highest or count_bits(text_signatures[other] & signature) + spare < least:
                    continue
                common = _count_common(tokens, known, text_tokens, start, stop, least, token)
                if common != -2:
                    counts[owner] += 1
                if counts[owner] > limit:
                    break
                if common < 0:
                    continue
                if found == size_of:
                    size_of *= 2
                    more_items, more_rows = np.empty(size_of, dtype=np.int64), np.empty(size_of, dtype=np.int64)
                    more_items[:found] = items[:found]
                    more_rows[:found] = rows[:found]
                    items, rows = more_items, more_rows
                items[found] = owner
                rows[found] = row
                found += 1
    return items[:found], rows[:found]


@kernel
def check_similar(
    items: Array,
    rows: Array,
    item_texts: Array,
    offsets: Array,
    words: Array,
    ranks: Array,
    numerator: Number,
    denominator: Number,
    text_rows: Array,
    text_offsets: Array,
    text_tokens: Array,
) -> Array:
    """Return a mask of the pairs of which some two texts have at least the similarity of the fraction.

    The texts of an item are those from `item_texts[item]` to `item_texts[item + 1]`, in `offsets` and `words`.
    """
    mask = np.zeros(len(items), dtype=np.bool_)
    longest = 1
    for text in range(len(offsets) - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    tokens = np.empty(longest, dtype=np.int64)
    known, sorted_text = 0, -1  # the text whose words are in `tokens`
    for pair in range(len(items)):
        first, last = rows[pair], rows[pair] + 1
        if len(text_rows):
            first, last = np.searchsorted(text_rows, rows[pair]), np.searchsorted(text_rows, rows[pair] + 1)
        for text in range(item_texts[items[pair]], item_texts[items[pair] + 1]):
            size = offsets[text + 1] - offsets[text]
            if text != sorted_text:
                known, sorted_text = _known_tokens(words, offsets[text], offsets[text + 1], ranks, tokens), text
            for other in range(first, last):
                start, stop = np.int64(text_offsets[other]), np.int64(text_offsets[other + 1])
                least = _least_common(size, stop - start, numerator, denominator)
                if known and _count_common(tokens, known, text_tokens, start, stop, least, -1) >= least:
                    mask[pair] = True
    return mask


@kernel
def count_listed(owners: Array, terms: Array, bounds: Array, offsets: Array, rows: Array, counts: Array) -> None:
    """Add to the number of each item how many rows before its bound are listed under its terms."""
    for number in range(len(owners)):
        term = terms[number]
        if term >= 0:
            start, stop = np.int64(offsets[term]), np.int64(offsets[term + 1])
            if stop > start and rows[stop - 1] >= bounds[owners[number]]:
                stop = start + np.searchsorted(rows[start:stop], bounds[owners[number]])
            counts[owners[number]] += stop - start


@kernel
def listed_pairs(
    owners: Array, terms: Array, bounds: Array, chosen: Array, offsets: Array, rows: Array
) -> tuple[Array, Array]:
    """Return the pairs of the chosen items and the rows before their bounds that are listed under their terms."""
    total = np.int64(0)
    for number in range(len(owners)):
        if terms[number] >= 0 and chosen[owners[number]]:
            total += np.int64(offsets[terms[number] + 1]) - np.int64(offsets[terms[number]])
    pair_items, pair_rows = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    found = 0
    for number in range(len(owners)):
        owner, term = owners[number], terms[number]
        if term >= 0 and chosen[owner]:
            for posting in range(np.int64(offsets[term]), np.int64(offsets[term + 1])):
                if rows[posting] >= bounds[owner]:
                    break
                pair_items[found] = owner
                pair_rows[found] = rows[posting]
                found += 1
    return pair_items[:found], pair_rows[:found]


@kernel
def check_listed(items: Array, rows: Array, starts: Array, terms: Array, offsets: Array, listed: Array) -> Array:
    """Return a mask of the pairs whose row is listed under a term of the item.

    The terms of an item are those from `starts[item]` to `starts[item + 1]`.
    """
    mask = np.zeros(len(items), dtype=np.bool_)
    for pair in range(len(items)):
        for number in range(starts[items[pair]], starts[items[pair] + 1]):
            term = terms[number]
            if term >= 0:
                low, high = np.int64(offsets[term]), np.int64(offsets[term + 1])
                stop = high
                while low < high:
                    middle = (low + high) >> 1
                    if listed[middle] < rows[pair]:
                        low = middle + 1
                    else:
                        high = middle
                if low < stop and listed[low] == rows[pair]:
                    mask[pair] = True
    return mask


@kernel
def select_pairs(
    claim_starts: Array,
    claim_windows: Array,
    claim_extents: Array,
    item_accepted: Array,
    pair_items: Array,
    pair_rows: Array,
    accepted: Array,
    positions: Array,
    numbers: Array,
    row_starts: Array,
    row_windows: Array,
    member_starts: Array,
    member_rows: Array,
    later: Array,
    is_ranked: Array,
    own_positions: Array,
    own_starts: Array,
    own_rows: Array,
    own_bounds: Array,
    is_own: Number,
) -> tuple[Array, Array]:
    """Return which pairs of one part each claim selects: those whose row is in the claim's window and recent enough.

    The claims of item i are those from `claim_starts[i]` to `claim_starts[i + 1]`: the number of a window, and its
    extent (items, or microseconds as a negative number). `numbers` has the number of each window of the part, or -1,
    and `positions` the reverse. `later` counts for each window the members in later parts before the run, and
    `own_bounds` has for each item the first row of the run's own part that is not earlier. Windows without
    `is_ranked` are not counted here: all their members are selected.
    """
    stamps = np.full(len(positions), -1, dtype=np.int64)
    found, size = 0, 64
    claims, pairs = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    for pair in range(len(pair_items)):
        item, row = pair_items[pair], pair_rows[pair]
        if len(row_starts):
            for place in range(np.int64(row_starts[row]), np.int64(row_starts[row + 1])):
                number = numbers[np.int64(row_windows[place])]
                if number >= 0:
                    stamps[number] = pair
        else:
            for place in range(len(numbers)):
                if numbers[place] >= 0:
                    stamps[numbers[place]] = pair
        age = item_accepted[item] - accepted[row]
        for claim in range(claim_starts[item], claim_starts[item + 1]):
            window = claim_windows[claim]
            if stamps[window] != pair:
                continue
            extent = claim_extents[claim]
            if extent < 0:
                if age >= -extent:
                    continue
            elif is_ranked[window]:
                newer = later[window]
                position = positions[window]
                if len(member_starts):
                    low, high = np.int64(member_starts[position]), np.int64(member_starts[position + 1])
                    stop = high
                    while low < high:
                        middle = (low + high) >> 1
                        if member_rows[middle] <= row:
                            low = middle + 1
                        else:
                            high = middle
                    newer += stop - low
                else:
                    newer += len(accepted) - row - 1
                own = own_positions[window]
                if own >= 0:
                    before = own_bounds[item]
                    total = before
                    if len(own_starts):
                        first, last = np.int64(own_starts[own]), np.int64(own_starts[own + 1])
                        total = np.searchsorted(own_rows[first:last], before)
                        if is_own:
                            newer -= last - first
                    elif is_own:
                        newer -= len(accepted)
                    newer += total
                if newer >= extent:
                    continue
            if found == size:
                size *= 2
                more_claims, more_pairs = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
                more_claims[:found] = claims[:found]
                more_pairs[:found] = pairs[:found]
                claims, pairs = more_claims, more_pairs
            claims[found] = claim
            pairs[found] = pair
            found += 1
    return claims[:found], pairs[:found]
