"""Messages of horizontal training that a hostile peer may send: changed ones, and random ones of every kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from pydantic import ValidationError

from protocols.messages.horizontal import (
    AddUp,
    Commitments,
    Divide,
    FinishTree,
    Members,
    PassTree,
    Place,
    Reveals,
    StartTree,
    Survivors,
    Unmask,
    WantHistograms,
    WantTotals,
    Welcome,
)
from protocols.messages.message import Message
from protocols.messages.vertical import Done
from protocols.secure_aggregation.epochs import SEALED_BYTES
from protocols.secure_aggregation.masking import CONFIRMATION_BYTES

Array = np.ndarray[Any, np.dtype[Any]]

WHOLE = (0, 1, 2, 3, 4, 7, 127, 200, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)
NODES = (-(2**31), -200, -2, -1, *range(18), 31, 126, 127, 128, 200, 65535, 2 * 10**9, 2**31 - 1)
NUMBERS = (0.0, -0.0, 0.1, -0.5, 0.9, 1.0, 2.0, 1e-320, 1e18, 1e300, -1e300, float("inf"), -float("inf"), float("nan"))
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17)
# Elements of an array that is seldom sent: a minute is too short for work that grows with their square.
LONG = 1 << 17


def changed(message: Message, draw: random.Random) -> Message:
    """The message with one to three changes; some leave the arrays of a list of splits of one length."""
    fields = {name: getattr(message, name) for name in type(message).model_fields}
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if isinstance(message, Divide) and not draw.randrange(3):
            _change_splits(fields, draw)
        elif fields:
            name = draw.choice(sorted(fields))
            fields[name] = _other(fields[name], draw)
    return type(message).model_construct(**fields)


def random_message(draw: random.Random) -> Message:
    """A message of any kind that a worker, or an owner in a chain, may hear."""
    while True:
        # What a message's own fields refuse never comes to be.
        with suppress(ValidationError):
            return _KINDS[draw.randrange(len(_KINDS))](draw)


def _other(value: Any, draw: random.Random) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int():
            return draw.choice((*WHOLE, min(value + 1, WHOLE[-1]), max(0, value - 1)))
        case float():
            return draw.choice(NUMBERS)
        case bytes():
            return draw.randbytes(len(value))
        case tuple():
            return draw.choice((value[::-1], value[1:], (*value, "another"), value + value, value * 30))
        case np.ndarray():
            return _other_array(value, draw)
    return {"epsilon": draw.choice(NUMBERS)}


def _other_array(array: Array, draw: random.Random) -> Array:
    n = len(array)
    match draw.randrange(9):
        case 0 | 1 | 2 | 3 if array.size:
            array = array.copy()
            for _ in range(draw.choice((1, 1, 2, 50))):
                array.flat[draw.randrange(array.size)] = _element(array, draw)
            return array
        case 4:
            return array[: draw.randrange(n + 1)]
        case 5:
            return np.concatenate([array, array[draw.randrange(n + 1) :]])
        case 6:
            return array[np.random.default_rng(draw.randrange(2**32)).permutation(n)]
        case 7 if array.ndim == 2:
            return np.ascontiguousarray(
                array.T if draw.random() < 0.5 else array[:, : draw.randrange(array.shape[1] + 1)]
            )
        case 8 if not draw.randrange(20):
            return (
                np.resize(array, (LONG, *array.shape[1:]))
                if array.size
                else np.zeros((LONG, *array.shape[1:]), array.dtype)
            )
    return array[:0]


def _element(array: Array, draw: random.Random) -> Any:
    match array.dtype.kind:
        case "b":
            return draw.random() < 0.5
        case "f":
            return draw.choice(NUMBERS)
        case "u":
            return draw.choice((0, 1, 127, 255, np.iinfo(array.dtype).max))
    return draw.choice(NODES)


def _change_splits(fields: dict[str, Any], draw: random.Random) -> None:
    """Take a split away, repeat one, or change the number of levels."""
    names = ("nodes", "columns", "cuts", "missing_left")
    levels, n = fields["levels"].copy(), len(fields["nodes"])
    if draw.random() < 0.4 or not n or not len(levels):
        fields["levels"] = np.concatenate([levels, levels[-1:]])
        last = int(levels[-1]) if len(levels) else 0
        for name in names:
            fields[name] = np.concatenate([fields[name], fields[name][n - last :]])
        return
    at, is_more = draw.randrange(n), draw.random() < 0.5
    place = draw.randrange(len(levels))
    levels[place] = np.clip(int(levels[place]) + (1 if is_more else -1), NODES[0], NODES[-1])
    fields["levels"] = levels
    for name in names:
        array = fields[name]
        fields[name] = np.concatenate([array[: at + is_more], array[at + 1 - is_more :]])


def _nodes(draw: random.Random, n: int | None = None) -> Array:
    highest = draw.choice((1, 2, 4, 8, 16, len(NODES)))
    found = [draw.choice(NODES[3 : 4 + highest]) for _ in range(draw.choice(LENGTHS) if n is None else n)]
    return np.array(sorted(found) if draw.random() < 0.5 else found, "<i4")


def _flags(draw: random.Random, n: int) -> Array:
    return np.array([draw.random() < 0.6 for _ in range(n)], np.bool_)


def _values(draw: random.Random, n: int) -> Array:
    return np.array([draw.choice(NUMBERS[: draw.choice((6, 7, 14))]) for _ in range(n)])


def _divide(draw: random.Random) -> Message:
    """Half of them are of whole levels, as those of complete trees are."""
    if draw.random() < 0.5:
        depth = draw.randrange(4)
        levels = np.array([2**k for k in range(depth, depth + draw.choice((1, 1, 2)))], "<i4")
        nodes = np.arange(2**depth - 1, 2**depth - 1 + levels.sum(), dtype="<i4")
    else:
        levels = _nodes(draw, draw.choice((1, 1, 2)))
        nodes = _nodes(draw, int(np.clip(levels.sum(), 0, 40)))
    n = len(nodes)
    cuts = np.array([draw.randrange(draw.choice((3, 8, 16, 20))) for _ in range(n)], "<i4")
    columns = np.array([draw.randrange(draw.choice((1, 3, 3, 4))) for _ in range(n)], "<i4")
    return Divide(levels=levels, nodes=nodes, columns=columns, cuts=cuts, missing_left=_flags(draw, n))


def _place(draw: random.Random) -> Message:
    shape = draw.choice((2, 3, 3, 3, 4)), draw.choice((0, 7, 8, 8, 8, 15))
    cuts = np.random.default_rng(draw.randrange(2**32)).random(shape)
    return Place(cuts=np.sort(cuts, axis=1) if draw.random() < 0.7 else cuts)


def _rows(draw: random.Random, n: int, width: int) -> Array:
    shape = draw.choice((n, n, n, 0, n + 1)), draw.choice((width, width, width, 0, 1))
    return np.random.default_rng(draw.randrange(2**32)).integers(0, 256, shape, np.uint8)


def _add_up(draw: random.Random) -> Message:
    return AddUp(
        n_wanted=draw.choice(WHOLE[:6]),
        epoch=draw.choice(WHOLE[:4]),
        round=draw.randrange(8),
        present=_flags(draw, draw.choice((1, 2, 2, 3))),
    )


def _members(draw: random.Random) -> Message:
    n = draw.choice((0, 1, 2, 2, 3, 50))
    names = tuple(draw.choice(("w0", "mate", "w1", "w2")) for _ in range(n))
    return Members.model_construct(
        epoch=draw.choice(WHOLE), names=names, keys=_rows(draw, n, 32), round=draw.choice(WHOLE)
    )


def _unmask(draw: random.Random) -> Message:
    n = draw.choice((1, 2, 2, 3))
    sealed, confirmations = _rows(draw, n, SEALED_BYTES), _rows(draw, n, CONFIRMATION_BYTES)
    return Unmask.model_construct(
        epoch=draw.choice(WHOLE[:4]), round=draw.randrange(8), sealed=sealed, confirmations=confirmations
    )


def _survivors(draw: random.Random) -> Message:
    flags = _flags(draw, draw.choice((1, 2, 2, 3)))
    return Survivors(epoch=draw.choice(WHOLE[:4]), round=draw.randrange(8), survivors=flags)


def _commitments(draw: random.Random) -> Message:
    n = draw.choice((1, 2, 3))
    names = tuple(draw.choice(("w0", "w1", "w2")) for _ in range(n))
    return Commitments(names=names, rows=_rows(draw, n, 32), is_open=draw.random() < 0.5)


def _pass_tree(draw: random.Random) -> Message:
    n = draw.choice((1, 3, 5, 7, 9, 15))
    lefts = np.array([2 * k + 1 if 2 * k + 1 < n else 0 for k in range(n)], "<i4")
    lefts = lefts if draw.random() < 0.6 else _nodes(draw, n)
    columns = np.where(lefts > 0, np.array([draw.randrange(4) for _ in range(n)]), -1).astype("<i4")
    return PassTree(
        turn=draw.choice(WHOLE[:4]),
        epsilon=draw.choice((2.0, *NUMBERS)),
        is_secure=draw.random() < 0.5,
        columns=columns,
        thresholds=np.array([float(draw.randrange(20)) for _ in range(n)]),
        missing_left=_flags(draw, n),
        lefts=lefts,
        rights=np.where(lefts > 0, lefts + 1, 0).astype("<i4"),
        values=_values(draw, n),
    )


_OFTEN: Sequence[Callable[[random.Random], Message]] = (
    lambda draw: StartTree(output=draw.choice(WHOLE[: draw.choice((1, 4, len(WHOLE)))])),
    lambda draw: WantTotals(nodes=_nodes(draw)),
    lambda draw: WantHistograms(nodes=_nodes(draw)),
    lambda draw: FinishTree(values=_values(draw, draw.choice(LENGTHS))),
    _divide,
    _place,
    _add_up,
)
_KINDS: Sequence[Callable[[random.Random], Message]] = (
    *_OFTEN * 3,
    _members,
    _survivors,
    _unmask,
    _commitments,
    _pass_tree,
    lambda draw: Reveals(rows=_rows(draw, draw.choice((1, 2, 3)), 32)),
    lambda draw: Welcome(terms={"epsilon": draw.choice(NUMBERS)}),
    lambda draw: Done(),
)
