"""Serialization of how a table's cells are written, as plain values, for JSON files and for the wire."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

import pandas as pd
from pydantic import JsonValue, TypeAdapter

from opboost.table_format import TableFormat
from parties.errors import ConfigError

# What a schema file can say of numbers and times.
DecimalMark = Literal[".", ","]
ThousandsMark = Literal["", ",", ".", " ", "'"]
UNITS_S = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}

# Patterns of a column's times, characters of each, and different ones of a table.
MOST_PATTERNS, MOST_PATTERN_CHARACTERS, _MOST_DIFFERENT = 20, 200, 400

_FORMAT = TypeAdapter(TableFormat)
_PLAIN: dict[str, JsonValue] = _FORMAT.dump_python(TableFormat(), mode="json")


def format_to_dict(form: TableFormat) -> dict[str, JsonValue]:
    """Settings that differ from the format of files that programs write; empty if none do."""
    written: dict[str, JsonValue] = _FORMAT.dump_python(form, mode="json")
    return {key: value for key, value in written.items() if value != _PLAIN[key]}


def format_from_dict(document: Mapping[str, Any], *, columns: Collection[str]) -> TableFormat:
    """The inverse of `format_to_dict` for these columns, with the checks that a schema file has.

    Raises
    ------
    ConfigError
    """
    if not isinstance(document, Mapping) or not document.keys() <= _PLAIN.keys():
        raise ConfigError("the format of cells is malformed")
    try:
        # What is no text is none here: `strip: "yes"` is malformed.
        form = _FORMAT.validate_json(json.dumps(document), strict=True)
        form.check_marks()
    except ValueError:
        raise ConfigError("the format of cells is malformed") from None
    own = [form.of(name) for name in form.columns]
    is_known = form.decimal in get_args(DecimalMark) and form.thousands in get_args(ThousandsMark)
    is_known &= form == form.of_cells(columns) and {column.unit_s for column in own} <= {None, *UNITS_S.values()}
    # Each is compiled whenever the model is read.
    patterns = {pattern for column in own for pattern in column.patterns}
    is_short = all(len(column.patterns) <= MOST_PATTERNS for column in own) and len(patterns) <= _MOST_DIFFERENT
    if not (is_known and is_short and all(map(is_time_pattern, patterns))):
        raise ConfigError("the format of cells has marks, columns, units or patterns that are not known")
    return form


def is_time_pattern(pattern: str) -> bool:
    """Whether a pattern of a date can be used, whatever it then makes of a text."""
    if not re.search(r"%[a-zA-Z]", pattern) or len(pattern) > MOST_PATTERN_CHARACTERS:
        return False
    try:
        pd.to_datetime(["2024-05-31"], format=pattern, errors="coerce", utc=True)
    except (ValueError, re.error):
        return False
    return True
