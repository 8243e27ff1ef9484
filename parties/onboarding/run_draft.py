"""Run file draft: the keys that a party gave, and every other one with its default and its meaning as a comment."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from opboost.mechanism_settings import DEFAULT_WHOLE_RANGE
from parties.onboarding.key_words import constraint_words, keys_of, type_words
from parties.onboarding.schema_text import flow

# Of a passive party.
DESENSITIZE = {"mechanism": "global", "whole_range": DEFAULT_WHOLE_RANGE}


def run_file_text(model: type[BaseModel], given: Mapping[str, Any]) -> str:
    """A run file with all keys of its role, of which those that are given count."""
    head = "# A line that begins with # is a choice that was left at its default; remove the # to make it.\n"
    return head + "\n".join(_lines(model, given)) + "\n"


def _lines(model: type[BaseModel], given: Mapping[str, Any], depth: int = 0, *, counts: bool = True) -> Iterator[str]:
    for key, field in keys_of(model):
        section = field.annotation if inspect.isclass(field.annotation) else None
        is_given, indent = counts and key in given, "  " * depth
        mark = "" if is_given else "# "
        if section is not None and issubclass(section, BaseModel):
            yield f"{mark}{indent}{key}:  # {field.description}"
            yield from _lines(section, given.get(key, {}) if is_given else {}, depth + 1, counts=is_given)
        else:
            value = flow(given[key]) if is_given else _default(field)
            yield f"{mark}{indent}{key}: {value}  # {field.description} ({_choices(field)})"


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, (Enum, Path)):
        return value.value if isinstance(value, Enum) else str(value)
    return flow(list(value) if isinstance(value, tuple) else value)


def _choices(field: FieldInfo) -> str:
    return ", ".join([type_words(field.annotation), *constraint_words(field.metadata)]).replace("`", "")
