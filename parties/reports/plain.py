"""Plain values of facts for JSON: infinity is the string "inf", a path is its last part."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """Convert facts to dictionaries, lists, numbers and strings.

    Of paths only the names of files are kept: a report does not show folders.

    Raises
    ------
    TypeError
        If a value is of a kind that no report should hold.
    """
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else "inf" if value > 0 else "-inf" if value < 0 else None
        case StrEnum():
            return value.value
        case str():
            return value
        case Path():
            return value.name
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
        case other:
            raise TypeError(f"a report cannot hold a value of type {type(other).__name__}")
