"""Record ids: one or several id columns as one text, which is the same in every file that holds the record.

The number 1, the number 1.0, the decimal 1.00 and the text "1" are one id, since files differ in how they store
numbers; the texts "1.0", "01" and "1" are three, since a text may mean its zeros. Text is put into Unicode's composed
form (NFC), without white space around it; dates are written 2024-05-31. Whatever else (other fractions, truth values,
times of day) is refused.

Several columns are joined with the length of each part before it: ("ab", "c") is ``2:ab,1:c,`` and ("a", "bc") is
``1:a,2:bc,``, so no two records can come out alike.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd

from parties.errors import TableError
from parties.tables.sorted_ids import Duplicates, SortedIds, StoredIds, sort_ids

# Beyond it not every whole number is a double, so two ids might have become one before we saw them; likewise of
# floating-point numbers of fewer bytes.
MAX_WHOLE_DOUBLE = 2**53 - 1
_MAX_WHOLE = {2: 2**11 - 1, 4: 2**24 - 1}

Ids = pd.Index | StoredIds

# Ids that are texts of Python's at a time, where the others are not.
PIECE_IDS = 1 << 16

_PART = re.compile(r"(\d+):")


def read_ids(frame: pd.DataFrame, columns: Sequence[str], path: Path) -> pd.Index:
    """The ids of a table's rows, in its order.

    Raises
    ------
    TableError
        If a cell is empty or cannot be an id.
    """
    parts = [_texts(frame[name], name, path) for name in columns]
    return pd.Index(parts[0] if len(parts) == 1 else [join(row) for row in zip(*parts, strict=True)], dtype=object)


def each_id(ids: Ids) -> Iterator[str]:
    """Ids as texts, one after the other."""
    for start in range(0, len(ids), PIECE_IDS):
        yield from ids[start : start + PIECE_IDS].to_numpy(dtype=object)


def digest_of_ids(ids: Ids) -> str:
    """A digest of ids in their order."""
    digest = hashlib.sha256()
    for encoded in encoded_ids(ids):
        digest.update(encoded)
    return digest.hexdigest()


def encoded_ids(ids: Ids) -> Iterator[bytes]:
    """Bytes that the digest of ids is computed over, id by id: the length of the id, then its text."""
    for record_id in each_id(ids):
        encoded = record_id.encode()
        yield len(encoded).to_bytes(4, "little") + encoded


def rows_to_keep(ids: pd.Index, duplicates: Duplicates, columns: Sequence[str], path: Path) -> np.ndarray:
    """Row numbers in ascending order of their ids, none of which comes twice.

    Raises
    ------
    TableError
        If an id is repeated and that is to be refused, or if no row remains.
    """
    return ids_to_keep([ids], duplicates, columns, path).rows[:]


def ids_to_keep(pieces: Iterable[pd.Index], duplicates: Duplicates, columns: Sequence[str], path: Path) -> SortedIds:
    """The rows to keep of ids that come in pieces, with their ids.

    Raises
    ------
    TableError
        As for `rows_to_keep`.
    """
    named = "column " + repr(columns[0]) if len(columns) == 1 else f"columns {', '.join(map(repr, columns))}"
    ids = sort_ids(pieces, duplicates)
    if ids.n_repeated and duplicates == "refuse":
        raise TableError(
            f"{path}: {named} repeats an id in {ids.n_repeated} of {ids.n_rows} rows; ids must be unique, or, "
            "where parties hold columns, `align` must say which rows count: `duplicates: first`, `last` or `drop`"
        )
    if len(ids.rows) == 0:
        raise TableError(f"{path} has no rows" + (f" whose id is not repeated in {named}" if ids.n_rows else ""))
    return ids


def join(parts: Sequence[str]) -> str:
    """One text for an id of several columns."""
    return "".join(f"{len(part)}:{part}," for part in parts)


def split(record_id: str) -> list[str]:
    """The parts that `join` made one."""
    parts, at = [], 0
    while at < len(record_id):
        length = _PART.match(record_id, at)
        assert length is not None
        end = length.end() + int(length[1])
        parts.append(record_id[length.end() : end])
        at = end + 1
    return parts


def with_parts(predictions: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """A table keyed by ``id`` with the columns beside it that the id was made of, if they are several."""
    if len(columns) == 1:
        return predictions
    parts = pd.DataFrame([split(record_id) for record_id in predictions["id"]], columns=[f"id.{c}" for c in columns])
    return pd.concat([predictions[["id"]], parts, predictions.drop(columns="id")], axis=1)


def canonical(text: str) -> str:
    """A text as it counts in an id."""
    return (text if text.isascii() else unicodedata.normalize("NFC", text)).strip()


def optional_texts(column: pd.Series, name: str, path: Path) -> list[str]:
    """Every cell as a text, which is empty where the cell is.

    Raises
    ------
    TableError
        If a cell is something that does not count as an id.
    """
    texts, is_known = np.full(len(column), "", dtype=object), column.notna().to_numpy()
    if is_known.any():
        texts[is_known] = np.array(_convert(column[is_known], name, path), dtype=object)
    return list(texts)


def _texts(column: pd.Series, name: str, path: Path) -> list[str]:
    texts = optional_texts(column, name, path)
    if n_missing := texts.count(""):
        raise TableError(f"{path}: {n_missing} rows have no {name!r}")
    return texts


def _convert(column: pd.Series, name: str, path: Path) -> list[str]:
    """Every value as text."""
    types, cause = pd.api.types, ""
    if types.is_bool_dtype(column):
        texts: list[str | None] = [None]
    elif types.is_float_dtype(column):
        highest = _MAX_WHOLE.get(getattr(column.dtype, "itemsize", 8), MAX_WHOLE_DOUBLE)
        texts = [_whole(value, highest) for value in column.astype(float).tolist()]
        cause = f"; of whole numbers, {column.dtype} holds each up to {highest} alone"
    elif types.is_integer_dtype(column):
        texts = list(map(str, column.tolist()))
    elif types.is_datetime64_any_dtype(column):
        texts = [_day(value) for value in column]
    else:
        texts = [_text(value) for value in column]
    readable = [text for text in texts if text is not None]
    if len(readable) < len(texts):
        odd = f"column {name!r} holds values that are neither text nor whole numbers nor dates"
        raise TableError(f"{path}: {odd}{cause}")
    return readable


def _text(value: object) -> str | None:
    match value:
        case str():
            return canonical(value)
        case bool():
            return None
        case int():
            return str(value)
        case float():
            return _whole(value)
        case Decimal():
            return str(int(value)) if value.is_finite() and value == value.to_integral_value() else None
        case datetime.datetime():
            return _date(value)
        case datetime.date():
            return value.isoformat()
        case _:
            return None


def _whole(value: float, highest: int = MAX_WHOLE_DOUBLE) -> str | None:
    return str(int(value)) if abs(value) <= highest and value.is_integer() else None


def _day(value: pd.Timestamp) -> str | None:
    """A date as text; None for a time of day, or a year outside the four digits of Python's dates."""
    try:
        return _date(value.to_pydatetime(warn=False))
    except (OverflowError, ValueError):
        return None


def _date(value: datetime.datetime) -> str | None:
    return value.date().isoformat() if value.time() == datetime.time() and value.tzinfo is None else None
