"""Section: the base class of everything in a run file, and the types that several sections share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field

from protocols.transport.keys import NAME_PATTERN

Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]

T = TypeVar("T")


class Section(BaseModel):
    """A frozen value with checked fields; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def resolved(value: T, folder: Path) -> T:
    """Resolve every path in a section, at any depth, against the folder of the run file."""
    found: object = value
    match value:
        case Path():
            found = folder / value
        case tuple():
            found = tuple(resolved(item, folder) for item in value)
        case Section():
            before = {name: getattr(value, name) for name in type(value).model_fields}
            after = {name: resolved(field, folder) for name, field in before.items()}
            found = value.model_copy(update={name: after[name] for name in after if after[name] != before[name]})
    return cast(T, found)
