"""Serialization of mechanisms, routers and guarantees as plain values, for JSON files and for the wire."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np
from pydantic import JsonValue, TypeAdapter, ValidationError

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.guarantee import ColumnGuarantee, Guarantee
from opboost.privacy.order_preserving import PartitionedMap
from opboost.routing import Router, SplitTests
from opboost.schema import column_from_mapping
from parties.errors import ConfigError
from parties.storage.cell_formats import format_from_dict, format_to_dict

_GUARANTEE, _COLUMN = TypeAdapter(Guarantee), TypeAdapter(ColumnGuarantee)

# Characters of a sentence of a guarantee; what it does not protect, and settings and other facts of a column.
MAX_TEXT = 2000
MAX_ENTRIES = 100

# Thresholds lie among codes, which are whole numbers that doubles tell apart.
MAX_THRESHOLD = 2.0**53

# What reading a document of the wrong structure can raise.
_MALFORMED = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


def mechanism_to_dict(mechanism: ColumnMechanism) -> dict[str, JsonValue]:
    """A column's schema and settings: all of it public knowledge at the column's owner."""
    schema = asdict(mechanism.schema)
    settings = asdict(mechanism.settings)
    return {
        "name": schema.pop("name"),
        "schema": {key: _json(value) for key, value in schema.items() if value not in (None, ())},
        "settings": {key: _json(value) for key, value in settings.items() if value is not None},
    }


def mechanism_from_dict(document: Mapping[str, Any]) -> ColumnMechanism:
    """The inverse of `mechanism_to_dict`, with every check of the schema and the settings."""
    schema = column_from_mapping(str(document["name"]), document["schema"])
    return ColumnMechanism(schema, MechanismSettings(**_numbers(document["settings"])))


def _json(value: Any) -> JsonValue:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return "inf" if value == math.inf else value


def router_to_dict(router: Router) -> dict[str, JsonValue]:
    """A router as plain values; a test that only asks for presence has the threshold None."""
    tests: list[JsonValue] = [
        {
            "source": source,
            "category": category,
            "threshold": threshold if math.isfinite(threshold) else None,
            "missing_left": missing_left,
        }
        for (source, category), threshold, missing_left in zip(
            router.tests.sources, router.tests.thresholds.tolist(), router.tests.missing_left.tolist(), strict=True
        )
    ]
    columns: list[JsonValue] = [mechanism_to_dict(mechanism) for mechanism in router.mechanisms]
    document: dict[str, JsonValue] = {"columns": columns, "tests": tests}
    if router.tests.by_cells:
        document["by_cells"] = True
    return document if router.format is None else {**document, "cells": format_to_dict(router.format)}


def router_from_dict(document: Mapping[str, Any], *, most_cells: float = math.inf) -> Router:
    """The inverse of `router_to_dict`; of a peer's document, mechanisms are built until they hold so many cells.

    Raises
    ------
    ConfigError
        If the document is malformed, or has more cells.
    """
    try:
        mechanisms = tuple(_mechanisms(document["columns"], most_cells))
        tests = document["tests"]
        thresholds = [math.inf if test["threshold"] is None else _threshold(test["threshold"]) for test in tests]
        sources = tuple((str(test["source"]), test["category"]) for test in tests)
        known = {mechanism.schema.name: len(mechanism.schema.categories) for mechanism in mechanisms}
        for source, category in sources:
            # True and 1.0 are in a range, too.
            is_category = type(category) is int and category in range(known.get(source, 0))
            if source not in known or not (category is None or is_category):
                raise ConfigError("a split test names a column or category that the columns do not have")
        missing_left = np.array([bool(test["missing_left"]) for test in tests], dtype=np.bool_)
    except _MALFORMED as error:
        raise ConfigError(f"the split tests are malformed: {type(error).__name__}") from None
    by_cells = document.get("by_cells") is True
    split = SplitTests(sources, np.array(thresholds, dtype=np.float64), missing_left, by_cells)
    form = format_from_dict(document["cells"], columns=known) if "cells" in document else None
    return Router(mechanisms, split, form)


def _mechanisms(columns: Iterable[Mapping[str, Any]], most_cells: float) -> Iterator[ColumnMechanism]:
    n_cells = 0
    for column in columns:
        mechanism = mechanism_from_dict(column)
        n_cells += mechanism.value.cells.n_cells if isinstance(mechanism.value, PartitionedMap) else 0
        if n_cells > most_cells:
            raise ConfigError(f"the columns' domains have more than {most_cells} cells together")
        yield mechanism


def guarantee_from_dict(document: Mapping[str, Any]) -> Guarantee:
    """The inverse of `Guarantee.to_dict`.

    Raises
    ------
    ConfigError
        If the document is malformed.
    """
    if not isinstance(document, Mapping) or set(document) != {part.name for part in fields(Guarantee)}:
        raise ConfigError("the guarantee is malformed: it has missing or unknown parts")
    columns, not_protected = document["columns"], document["not_protected"]
    if not (isinstance(columns, list | tuple) and _is_short(not_protected) and all(map(_is_short_column, columns))):
        raise ConfigError(f"the guarantee is malformed, or has more than {MAX_ENTRIES} entries in one place")
    try:
        # Each for itself: of many that are wrong only the first one makes errors.
        column_guarantees = tuple(_COLUMN.validate_python(_number(column)) for column in columns)
        guarantee = replace(_GUARANTEE.validate_python(_number({**document, "columns": []})), columns=column_guarantees)
    except ValidationError as error:
        raise ConfigError(f"the guarantee is malformed in {error.error_count()} places") from None
    if any(len(text) > MAX_TEXT or not text.isprintable() for text in _texts(asdict(guarantee))):
        raise ConfigError(f"the guarantee holds a text of over {MAX_TEXT} characters, or one that cannot be printed")
    return guarantee


def _is_short(value: object) -> bool:
    return isinstance(value, list | tuple | Mapping) and len(value) <= MAX_ENTRIES


def _is_short_column(column: object) -> bool:
    return isinstance(column, Mapping) and _is_short(column) and _is_short(column.get("parameters", {}))


def _threshold(value: Any) -> float:
    number = float(value)
    if not abs(number) <= MAX_THRESHOLD:
        raise ValueError
    return number


def _texts(value: Any) -> Iterator[str]:
    """All texts of a document, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _numbers(document: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of a document; the string "inf" stands for infinity, which JSON lacks."""
    return {key: _number(value) for key, value in document.items()}


def _number(value: Any) -> Any:
    if isinstance(value, dict):
        return _numbers(value)
    if isinstance(value, list):
        return [_number(item) for item in value]
    return math.inf if value == "inf" else value
