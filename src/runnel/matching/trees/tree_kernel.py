"""The kernel that matches one tree with all patterns of a plan part, and the check of the arrays that it reads.

A list of nodes is a range of the *arena*, in document order. The arena begins with the nodes sorted by label, then
all elements, then all attributes. The lists of steps follow; they are kept while the tree is matched. The
steps inside a step have smaller numbers and are computed before it. The work on a pattern is at most the number of
its operations times the number of nodes; it is counted, and limited per pattern and per tree.
"""

from __future__ import annotations

from typing import NamedTuple

from runnel.arrays import Array
from runnel.kernel import Number, inlined, kernel, step
from runnel.matching.trees.step_programs import ANY_ATTRIBUTE, ANY_ELEMENT, Op

CHILD, BELOW, TEXT, CONSTANT = Op.CHILD.value, Op.BELOW.value, Op.TEXT.value, Op.CONSTANT.value
EQUAL, LESS, AT_MOST, GREATER, AT_LEAST = (
    Op.EQUAL.value,
    Op.LESS.value,
    Op.AT_MOST.value,
    Op.GREATER.value,
    Op.AT_LEAST.value,
)
AND, OR, NOT, FILTER = Op.AND.value, Op.OR.value, Op.NOT.value, Op.FILTER.value
_ANY_ELEMENT, _ANY_ATTRIBUTE = ANY_ELEMENT, ANY_ATTRIBUTE

COMPUTED, TOO_COSTLY, NO_SPACE = 0, 1, 2
TOKEN, MARK, TOP, WORK, SPENT, ELEMENTS = 0, 1, 2, 3, 4, 5
"""The entries of `state`: the numbers of the current lists and of the last marking, the end of the used arena, the
work on the current pattern and on the tree, and the number of its elements."""
STATES = 6


class PlanArrays(NamedTuple):
    """The arrays of a plan part. Pairs of offsets and values are sets of numbers."""

    steps: Array
    step_offsets: Array
    step_ops: Array
    pattern_offsets: Array
    pattern_steps: Array
    program_offsets: Array
    programs: Array
    constants: Array
    label_features: Array
    pair_keys: Array
    pair_features: Array
    text_keys: Array
    text_features: Array
    bucket_offsets: Array
    buckets: Array
    required_offsets: Array
    required: Array
    unanchored: Array


class NodeArrays(NamedTuple):
    """The nodes of a tree. `order` are the nodes sorted by label."""

    labels: Array
    namespaces: Array
    attributes: Array
    parents: Array
    ends: Array
    texts: Array
    numbers: Array
    order: Array
    sorted_labels: Array


class Scratch(NamedTuple):
    """Arrays that the kernel writes: lists of steps, features of the tree, node lists, and values on the stack."""

    memo: Array
    present: Array
    seen: Array
    arena: Array
    masks: Array
    marks: Array
    state: Array


@step
def first_at_least(values: Array, wanted: Number) -> Number:
    """Return the first position in sorted values that is not below `wanted`."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@step
def pair_key(first: Number, second: Number) -> Number:
    """Return the key of two numbers."""
    return (first << 32) | second


@inlined
def _see(
    keys: Array, features: Array, key: Number, present: Array, seen: Array, count: Number, token: Number
) -> Number:
    """Add the feature of a key, if there is one that is new for the tree. Return the number of features."""
    position = first_at_least(keys, key)
    if position < len(keys) and keys[position] == key:
        feature = features[position]
        if present[feature] != token:
            present[feature] = token
            seen[count] = feature
            count += 1
    return count


@inlined
def _see_features(plan: PlanArrays, nodes: NodeArrays, present: Array, seen: Array, token: Number) -> Number:
    """Collect the features of a tree in `seen`. Return their number."""
    # Arrays are taken out of their tuples before a loop, because every access to a tuple counts references.
    labels, parents, texts, label_features = nodes.labels, nodes.parents, nodes.texts, plan.label_features
    pair_keys, pair_features, text_keys, text_features = (
        plan.pair_keys,
        plan.pair_features,
        plan.text_keys,
        plan.text_features,
    )
    count = 0
    for node in range(len(labels)):
        label = labels[node]
        if label < 0:
            continue
        feature = label_features[label]
        if feature >= 0 and present[feature] != token:
            present[feature] = token
            seen[count] = feature
            count += 1
        parent = parents[node]
        if parent >= 0 and labels[parent] >= 0:
            count = _see(pair_keys, pair_features, pair_key(labels[parent], label), present, seen, count, token)
        if texts[node] >= 0:
            count = _see(text_keys, text_features, pair_key(label, texts[node]), present, seen, count, token)
    return count


@inlined
def _mark_parents(parents: Array, arena: Array, marks: Array, mark: Number, first: Number, last: Number) -> None:
    for position in range(first, last):
        parent = parents[arena[position]]
        if parent >= 0:
            marks[parent] = mark


@inlined
def _push(
    nodes: NodeArrays,
    scratch: Scratch,
    constants: Array,
    operation: Number,
    argument: Number,
    first: Number,
    last: Number,
    height: Number,
) -> None:
    """Put on the stack, for every node of a list, whether a test holds."""
    arena, marks, memo, mask = scratch.arena, scratch.marks, scratch.memo, scratch.masks[height]
    if operation == CHILD:
        scratch.state[MARK] += 1
        mark = scratch.state[MARK]
        _mark_parents(nodes.parents, arena, marks, mark, memo[argument, 1], memo[argument, 2])
        for position in range(first, last):
            mask[position - first] = marks[arena[position]] == mark
    elif operation == BELOW:
        ends, entry, end = nodes.ends, memo[argument, 1], memo[argument, 2]
        for position in range(first, last):
            node = arena[position]
            while entry < end and arena[entry] <= node:
                entry += 1
            mask[position - first] = entry < end and arena[entry] < ends[node]
    elif operation == TEXT:
        texts = nodes.texts
        for position in range(first, last):
            mask[position - first] = texts[arena[position]] == argument
    elif operation == CONSTANT:
        mask[: last - first] = argument != 0
    else:
        numbers, constant = nodes.numbers, constants[argument]
        for position in range(first, last):
            mask[position - first] = _compares(numbers[arena[position]], operation, constant)


@step
def _compares(number: Number, operation: Number, constant: Number) -> Number:
    """Compare the number of a node with a constant. The number is NaN if the text of the node is not a number."""
    if operation == EQUAL:
        return number == constant
    if operation == LESS:
        return number < constant
    if operation == AT_MOST:
        return number <= constant
    if operation == GREATER:
        return number > constant
    return number >= constant


@inlined
def _combine(masks: Array, operation: Number, height: Number, count: Number) -> Number:
    """Combine the values on top of the stack. Return its new height."""
    top = masks[height - 1]
    if operation == NOT:
        for index in range(count):
            top[index] = not top[index]
        return height
    below = masks[height - 2]
    for index in range(count):
        below[index] = (below[index] and top[index]) if operation == AND else (below[index] or top[index])
    return height - 1


@step
def _begin_list(label: Number, sorted_labels: Array, elements: Number) -> tuple[Number, Number]:
    """Return the list of the nodes with a label."""
    count = len(sorted_labels)
    if label == _ANY_ELEMENT:
        return count, count + elements
    if label == _ANY_ATTRIBUTE:
        return count + elements, 2 * count
    return first_at_least(sorted_labels, label), first_at_least(sorted_labels, label + 1)


@inlined
def _keep(arena: Array, mask: Array, top: Number, first: Number, last: Number) -> tuple[Number, Number]:
    """Keep the nodes of a list for which a value is true. A list before the top of the arena is copied to it."""
    start = target = max(first, top)
    for position in range(first, last):
        if mask[position - first]:
            arena[target] = arena[position]
            target += 1
    return start, target


@inlined
def _compute_step(plan: PlanArrays, nodes: NodeArrays, scratch: Scratch, number: Number, most_work: Number) -> Number:
    """Compute the list of a step and store it in the memo. Return COMPUTED, TOO_COSTLY or NO_SPACE."""
    arena, masks, memo, state, ops = scratch.arena, scratch.masks, scratch.memo, scratch.state, plan.step_ops
    constants, namespaces = plan.constants, nodes.namespaces
    first, last = _begin_list(plan.steps[number, 0], nodes.sorted_labels, state[ELEMENTS])
    top = state[TOP]
    if top + last - first > len(arena):
        return NO_SPACE
    namespace = plan.steps[number, 1]
    work = state[WORK] + 1 + last - first
    if namespace >= 0:
        for position in range(first, last):
            masks[0, position - first] = namespaces[arena[position]] == namespace
        first, last = _keep(arena, masks[0], top, first, last)
    height = 0
    for index in range(plan.step_offsets[number], plan.step_offsets[number + 1], 2):
        operation, argument = ops[index], ops[index + 1]
        work += 1 + last - first
        if operation == FILTER:
            first, last = _keep(arena, masks[0], top, first, last)
            height = 0
            if first == last:
                break
        elif operation in (AND, OR, NOT):
            height = _combine(masks, operation, height, last - first)
        else:
            if operation in (CHILD, BELOW):
                work += memo[argument, 2] - memo[argument, 1]
            _push(nodes, scratch, constants, operation, argument, first, last, height)
            height += 1
        if work > most_work:
            break
    state[WORK] = work
    if work > most_work:
        return TOO_COSTLY
    memo[number, 0], memo[number, 1], memo[number, 2] = state[TOKEN], first, last
    state[TOP] = max(top, last)
    return COMPUTED


@inlined
def _compute_steps(
    plan: PlanArrays, nodes: NodeArrays, scratch: Scratch, pattern: Number, most_work: Number
) -> tuple[Number, bool]:
    """Compute the steps of a pattern. Return a status, and whether every step that must have a node has one."""
    memo, pattern_steps, token = scratch.memo, plan.pattern_steps, scratch.state[TOKEN]
    for index in range(plan.pattern_offsets[pattern], plan.pattern_offsets[pattern + 1]):
        number, is_required = pattern_steps[index] >> 1, pattern_steps[index] & 1
        if memo[number, 0] != token:
            status = _compute_step(plan, nodes, scratch, number, most_work)
            if status != COMPUTED:
                return status, False
        if is_required and memo[number, 1] == memo[number, 2]:
            return COMPUTED, False
    return COMPUTED, True


@inlined
def _holds(plan: PlanArrays, scratch: Scratch, pattern: Number) -> Number:
    """Return whether the condition of a pattern holds for the document, after its steps are computed."""
    masks, memo, arena, programs, height = scratch.masks, scratch.memo, scratch.arena, plan.programs, 0
    for index in range(plan.program_offsets[pattern], plan.program_offsets[pattern + 1], 2):
        operation, argument = programs[index], programs[index + 1]
        if operation in (AND, OR, NOT):
            height = _combine(masks, operation, height, 1)
        else:
            has_nodes = memo[argument, 1] < memo[argument, 2]
            masks[height, 0] = has_nodes and (operation == BELOW or arena[memo[argument, 1]] == 0)
            height += 1
    return masks[0, 0]


@step
def _has_required(offsets: Array, required: Array, present: Array, pattern: Number, token: Number) -> bool:
    index, last = offsets[pattern], offsets[pattern + 1]
    while index < last and present[required[index]] == token:
        index += 1
    return index == last  # type: ignore[no-any-return]


@inlined
def _forget_lists(scratch: Scratch, nodes: NodeArrays) -> None:
    """Discard the lists of all steps, to free the arena."""
    scratch.state[TOKEN] += 1
    scratch.state[TOP] = 2 * len(nodes.labels)


@inlined
def _decide(
    plan: PlanArrays, nodes: NodeArrays, scratch: Scratch, pattern: Number, most_work: Number, most_spent: Number
) -> Number:
    """Return 1 if a pattern holds, 0 if it does not, and -1 if it takes too much work."""
    state = scratch.state
    if state[SPENT] > most_spent:
        return -1
    state[WORK] = 0
    status, may_hold = NO_SPACE, False
    for attempt in range(2):
        if attempt == 1:
            _forget_lists(scratch, nodes)
        status, may_hold = _compute_steps(plan, nodes, scratch, pattern, most_work)
        if status != NO_SPACE:
            break
    state[SPENT] += state[WORK]
    if status != COMPUTED:
        return -1
    return 1 if may_hold and _holds(plan, scratch, pattern) else 0


@inlined
def _begin_tree(nodes: NodeArrays, scratch: Scratch) -> None:
    """Fill the beginning of the arena, and reset everything that belongs to the previous tree."""
    arena, order, is_attribute = scratch.arena, nodes.order, nodes.attributes
    count = len(order)
    attributes = 0
    for node in range(count):
        attributes += is_attribute[node]
    scratch.state[ELEMENTS] = count - attributes
    element, attribute = count, 2 * count - attributes
    for node in range(count):
        arena[node] = order[node]
        if is_attribute[node]:
            arena[attribute] = node
            attribute += 1
        else:
            arena[element] = node
            element += 1
    _forget_lists(scratch, nodes)
    scratch.state[SPENT] = 0


@kernel
def match_tree(
    plan: PlanArrays,
    nodes: NodeArrays,
    scratch: Scratch,
    most_work: Number,
    most_spent: Number,
    found: Array,
    doubted: Array,
) -> tuple[Number, Number]:
    """Write the patterns that hold for a tree to `found`, and those that take too much work to `doubted`."""
    _begin_tree(nodes, scratch)
    token = scratch.state[TOKEN]
    present, required_offsets, required = scratch.present, plan.required_offsets, plan.required
    features = _see_features(plan, nodes, present, scratch.seen, token)
    holding = doubts = 0
    for index in range(features + 1):
        patterns, first, last = plan.unanchored, 0, len(plan.unanchored)
        if index < features:
            feature = scratch.seen[index]
            patterns, first, last = plan.buckets, plan.bucket_offsets[feature], plan.bucket_offsets[feature + 1]
        for position in range(first, last):
            pattern = patterns[position]
            if not _has_required(required_offsets, required, present, pattern, token):
                continue
            verdict = _decide(plan, nodes, scratch, pattern, most_work, most_spent)
            if verdict > 0:
                found[holding] = pattern
                holding += 1
            elif verdict < 0:
                doubted[doubts] = pattern
                doubts += 1
    return holding, doubts


@kernel
def max_height(
    offsets: Array, programs: Array, most: Array, texts: Number, numbers: Number, is_document: Number
) -> Number:
    """Return the largest height of the stack of valid programs, or -1 if a program is not valid.

    Every operation of program `i` must refer to a step below `most[i]`. Programs on the document have only steps and
    `and`, `or` and `not`; all others end with FILTER or are empty.
    """
    highest = 1
    for index in range(len(offsets) - 1):
        height = 0
        if (offsets[index + 1] - offsets[index]) % 2 or (is_document and offsets[index] == offsets[index + 1]):
            return -1
        for position in range(offsets[index], offsets[index + 1], 2):
            operation, argument = programs[position], programs[position + 1]
            if operation > CONSTANT and argument != 0:
                return -1
            if operation in (FILTER, NOT):
                if height < 1 or (operation == FILTER and (is_document or height != 1)):
                    return -1
                height -= 1 if operation == FILTER else 0
            elif operation in (AND, OR):
                if height < 2:
                    return -1
                height -= 1
            else:
                bound = most[index] if operation <= BELOW else texts if operation == TEXT else numbers
                bound = 2 if operation == CONSTANT else bound
                if operation < 0 or operation > CONSTANT or argument < 0 or argument >= bound:
                    return -1
                if is_document and operation > BELOW:
                    return -1
                height += 1
            highest = max(highest, height)
        if height != (1 if is_document else 0):
            return -1
    return highest
