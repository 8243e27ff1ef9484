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
    """A run file with all keys of its role, of which those that are given count; any other can be uncommented alone."""
    head = (
        "# A key behind a # is a choice that was left at its default; remove the # to make it. A section without keys "
        "is as good as none.\n"
    )
    return head + "\n".join(_lines(model, given)) + "\n"


def _lines(model: type[BaseModel], given: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for key, field in keys_of(model):
        section = field.annotation if inspect.isclass(field.annotation) else None
        if section is not None and issubclass(section, BaseModel):
            yield f"{indent}{key}:  # {field.description}"
            yield from _lines(section, given.get(key, {}), indent + "  ")
        else:
            mark, value = ("", flow(given[key])) if key in given else ("#", _default(field))
            yield f"{indent}{mark}{key}: {value}  # {field.description} ({_choices(field)})"


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, (Enum, Path)):
        return value.value if isinstance(value, Enum) else str(value)
    return flow(list(value) if isinstance(value, tuple) else value)


def _choices(field: FieldInfo) -> str:
    return ", ".join([type_words(field.annotation), *constraint_words(field.metadata)]).replace("`", "")
