"""A digest of everything that an object holds, to tell whether it was changed."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from operator import methodcaller
from pathlib import Path
from threading import Lock
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.rng import BitSource

# Streams of random bits have no state to be looked at: what was drawn shows in the trees.
NOT_LOOKED_AT = (type(Lock()), BitSource, FunctionType, MethodType, type)


def digest(value: Any) -> bytes:
    """Of all that a value holds, attribute by attribute."""
    found, waiting = hashlib.blake2b(), [value]
    while waiting:
        one = waiting.pop()
        found.update(type(one).__name__.encode())
        if isinstance(one, np.ndarray):
            found.update(repr((one.dtype.str, one.shape)).encode())
            found.update(np.ascontiguousarray(one))
        elif isinstance(one, (type(None), bool, int, float, str, bytes, np.generic, Path)):
            found.update(repr(one).encode())
        else:
            parts = parts_of(one)
            found.update(str(len(parts)).encode())
            waiting += parts
    return found.digest()


def parts_of(value: Any) -> list[Any]:
    match value:
        case _ if isinstance(value, NOT_LOOKED_AT):
            return []
        case dict():
            return [*value.items()]
        case PublicGrid():
            return [value.given]
        case methodcaller():
            return [value.__reduce__()[1]]
    if hasattr(value, "hexdigest"):
        return [value.hexdigest()]
    if hasattr(value, "__iter__"):
        return [*value]
    return [getattr(value, each.name) for each in fields(value)] if is_dataclass(value) else [vars(value)]
