"""Field types of messages: bounded numbers and texts, and numpy arrays of given dtypes and shapes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, FailFast, Field, JsonValue, PlainValidator

# Counts of rows, columns, ranks or rounds stay below this, which is more than any table or run has.
MAX_COUNT = 1 << 32

# Columns of ranks that a party may release: each of them is a name, an entry of the offer, and a file at the receiver.
MAX_COLUMNS = 1 << 16

# Bytes of the packed bits that say which codes of a mapped domain occur: a million points at most, and one more bit.
MAX_CODE_BYTES = 125_001

# Passive parties of a run, and one more.
MAX_PARTIES = 1 << 10

# Cuts of a column's agreed grid: the number of a cell, and that of a missing one, are a byte.
MAX_CUTS = 254

# Lists and maps within one another, in a document: guarantees and routers have four. Their readers are recursive.
MAX_DEPTH = 16

# Split tests that a model may ask one party for: each is a bit per record, and an entry of a list at either side.
MAX_TESTS = 1 << 20


def array_of(*dtypes: str, ndim: int = 1, width: int | None = None, max_rows: int | None = None) -> PlainValidator:
    """Accept finite numpy arrays of these dtypes and dimensions, and of this width and height, only.

    An array without a fixed width, such as one of no bytes, may claim any number of rows: its receiver compares its
    shape with the expected one before it reads a row.
    """

    def check(value: object) -> NDArray[np.generic]:
        if not isinstance(value, np.ndarray):
            raise ValueError(f"expected an array, found {type(value).__name__}")
        if value.dtype.str not in dtypes or value.ndim != ndim:
            raise ValueError(
                f"expected {ndim} dimensions of {' or '.join(dtypes)}, found {value.ndim} of {value.dtype.str}"
            )
        if (width is not None and value.shape[1:] != (width,)) or (max_rows is not None and len(value) > max_rows):
            raise ValueError(f"expected at most {max_rows} rows of width {width}, found the shape {value.shape}")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ValueError("expected finite numbers")
        return value

    checked: Callable[[object], NDArray[np.generic]] = check
    return PlainValidator(checked)


def few_cuts(cuts: object) -> object:
    """Refuse more cuts than there can be, before each of them is validated and makes an error of its own."""
    if isinstance(cuts, list | tuple) and len(cuts) > MAX_CUTS:
        raise ValueError(f"{len(cuts)} cuts")
    return cuts


def ascending(cuts: tuple[int, ...]) -> tuple[int, ...]:
    """Cuts in ascending order, no two alike."""
    if any(low >= high for low, high in pairwise(cuts)):
        raise ValueError("cuts must ascend")
    return cuts


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of which no two are alike: models, reports and explanations identify columns by them."""
    if len(set(names)) < len(names):
        raise ValueError("names must differ")
    return names


def document(value: object) -> object:
    """Accept a map of plain values that are not nested too deeply; an error names the first wrong value alone."""
    level: list[object] = [value] if isinstance(value, dict) else [b""]
    for _ in range(MAX_DEPTH):
        deeper: list[object] = []
        for found in level:
            if isinstance(found, dict) and all(isinstance(key, str) for key in found):
                deeper.extend(found.values())
            elif isinstance(found, list):
                deeper.extend(found)
            elif not isinstance(found, bool | int | float | str | None):
                raise ValueError(f"expected plain values, found {type(found).__name__}")
        if not deeper:
            return value
        level = deeper
    raise ValueError(f"values are nested more than {MAX_DEPTH} times")


# Characters of an `Abort`'s reason.
MAX_REASON = 2000

Name = Annotated[str, Field(min_length=1, max_length=200)]

Word = Annotated[str, Field(max_length=200)]

# Names of columns stand in reports and in files of predictions: no line breaks, nothing that a terminal obeys or that
# turns the reading direction, no separators but the blank.
ColumnName = Annotated[Name, Field(pattern=r"^(?: |[^\p{C}\p{Z}])+$")]

ColumnNames = Annotated[
    tuple[ColumnName, ...], FailFast(), Field(strict=False, max_length=MAX_COLUMNS), AfterValidator(distinct)
]

Document = Annotated[dict[str, JsonValue], PlainValidator(document)]

Count = Annotated[int, Field(ge=0, lt=MAX_COUNT)]

CutRanks = Annotated[
    tuple[Count, ...], BeforeValidator(few_cuts), Field(strict=False, max_length=MAX_CUTS), AfterValidator(ascending)
]

# A privacy loss: not NaN, and infinite where there is no noise.
PrivacyLoss = Annotated[float, Field(ge=0)]

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

RankArray = Annotated[NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32], array_of("|u1", "<u2", "<u4")]

IndexArray = Annotated[NDArray[np.uint32], array_of("<u4", max_rows=MAX_TESTS)]

TestFlags = Annotated[NDArray[np.bool_], array_of("|b1", max_rows=MAX_TESTS)]

FlagArray = Annotated[NDArray[np.bool_], array_of("|b1")]

PackedBits = Annotated[NDArray[np.uint8], array_of("|u1", ndim=2)]

FlatBits = Annotated[NDArray[np.uint8], array_of("|u1")]

StatusArray = Annotated[NDArray[np.uint8], array_of("|u1")]

ByteRows = Annotated[NDArray[np.uint8], array_of("|u1", ndim=2)]

RandomBytes = Annotated[bytes, Field(min_length=32, max_length=32)]

CurvePoint = Annotated[bytes, Field(min_length=33, max_length=33)]
