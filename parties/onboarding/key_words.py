"""Keys of run files in words: what the reference pages and drafted run files say about each."""

from __future__ import annotations

import inspect
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

_WORDS = {bool: "true or false", float: "number", int: "whole number", str: "text", Path: "path"}


def keys_of(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    """The keys as they stand in the file; required ones first."""
    keys = [(field.alias or name, field) for name, field in model.model_fields.items()]
    return sorted(keys, key=lambda pair: not pair[1].is_required())


def type_words(kind: Any) -> str:
    """A type in words."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return ", ".join([type_words(parts[0]), *constraint_words(_flat(parts[1:]))])
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_words(part) for part in parts if part is not type(None))
    if origin is tuple and parts[-1:] == (...,):
        return f"list of {type_words(parts[0])}"
    if origin is tuple:
        return f"[{', '.join(type_words(part) for part in parts)}]"
    if origin is dict:
        return f"mapping of {type_words(parts[0])} to {type_words(parts[1])}"
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        return "section"
    if inspect.isclass(kind) and issubclass(kind, Enum):
        return " or ".join(f"`{member.value}`" for member in kind)
    return _WORDS[kind]


def _flat(metadata: tuple[Any, ...]) -> list[Any]:
    """Constraints of an annotation, those inside ``Field(...)`` too."""
    return [
        constraint for item in metadata for constraint in (item.metadata if isinstance(item, FieldInfo) else [item])
    ]


def constraint_words(metadata: list[Any]) -> list[str]:
    """Bounds of a number or of a list's length."""
    words = []
    for constraint in metadata:
        match constraint:
            case annotated_types.Gt(gt=bound):
                words.append(f"> {bound}")
            case annotated_types.Ge(ge=bound):
                words.append(f"≥ {bound}")
            case annotated_types.Lt(lt=bound):
                words.append(f"< {bound}")
            case annotated_types.Le(le=bound):
                words.append(f"≤ {bound}")
            case annotated_types.MinLen(min_length=n):
                words.append(f"at least {n}")
            case annotated_types.MaxLen(max_length=n):
                words.append(f"at most {n}")
    return words
