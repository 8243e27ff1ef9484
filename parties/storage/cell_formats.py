"""Serialization of how a table's cells are written, as plain values, for JSON files and for the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd
from pydantic import JsonValue, TypeAdapter, ValidationError

from opboost.table_format import TableFormat
from parties.errors import ConfigError

# What a schema file can say of numbers and times.
DECIMAL_MARKS, THOUSANDS_MARKS = (".", ","), ("", ",", ".", " ", "'")
UNITS_S = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}

_FORMAT = TypeAdapter(TableFormat)
_PLAIN: dict[str, JsonValue] = _FORMAT.dump_python(TableFormat(), mode="json")


def format_to_dict(form: TableFormat) -> dict[str, JsonValue]:
    """What differs from the format of files that programs write; empty if nothing does."""
    written: dict[str, JsonValue] = _FORMAT.dump_python(form, mode="json")
    return {key: value for key, value in written.items() if value != _PLAIN[key]}


def format_from_dict(document: Mapping[str, Any]) -> TableFormat:
    """The inverse of `format_to_dict`, with every check that a schema file has.

    Raises
    ------
    ConfigError
    """
    if not isinstance(document, Mapping) or not document.keys() <= _PLAIN.keys():
        raise ConfigError("the format of cells is malformed")
    try:
        form = _FORMAT.validate_python(document)
    except ValidationError:
        raise ConfigError("the format of cells is malformed") from None
    patterns = [pattern for column in form.columns.values() for pattern in column.patterns]
    units = {column.unit_s for column in form.columns.values()} - {None}
    is_known = form.decimal in DECIMAL_MARKS and form.thousands in THOUSANDS_MARKS and form.decimal != form.thousands
    if not (is_known and units <= set(UNITS_S.values()) and all(map(is_time_pattern, patterns))):
        raise ConfigError("the format of cells has marks, units or patterns that are not known")
    return form


def is_time_pattern(pattern: str) -> bool:
    """Whether a pattern of a date can be used, whatever it then makes of a text."""
    if not re.search(r"%[a-zA-Z]", pattern):
        return False
    try:
        pd.to_datetime(["2024-05-31"], format=pattern, errors="coerce", utc=True)
    except (ValueError, re.error):
        return False
    return True
