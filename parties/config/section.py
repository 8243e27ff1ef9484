"""Section: the base class of everything in a run file, and the types that several sections share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from protocols.transport.keys import NAME_PATTERN

PlainName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# Counts travel as 64-bit numbers, and nothing is counted that far.
MOST_COUNT = 2**31 - 1
PositiveCount = Annotated[int, Field(ge=1, le=MOST_COUNT)]

T = TypeVar("T")


class Section(BaseModel):
    """A frozen value with checked fields; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Other names that keys are known by, and sentences about keys of other programs that are none here.
    _aliases: ClassVar[Mapping[str, str]] = {}
    _explained: ClassVar[Mapping[str, str]] = {}

    def paths(self) -> Iterator[Path]:
        """Every path in the section, at any depth."""
        for name in type(self).model_fields:
            yield from paths_in(getattr(self, name))

    @model_validator(mode="before")
    @classmethod
    def _leave_out_empty_sections(cls, given: object) -> object:
        """A section without keys, which YAML reads as null, counts as left out."""
        if not isinstance(given, dict):
            return given
        kinds = {field.alias or name: field.annotation for name, field in cls.model_fields.items()}
        sections = {key for key, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Section)}
        return {key: value for key, value in given.items() if value is not None or key not in sections}

    @model_validator(mode="before")
    @classmethod
    def _take_aliases(cls, given: object) -> object:
        if not isinstance(given, dict) or not (cls._aliases or cls._explained):
            return given
        if explained := [f"`{key}` {cls._explained[key]}" for key in given if key in cls._explained]:
            raise ValueError("; ".join(explained))
        meant: dict[str, object] = {}
        for key in given:
            name = cls._aliases.get(key, key)
            if name in meant:
                raise ValueError(f"`{meant[name]}` and `{key}` are names of `{name}`: give one of them")
            meant[name] = key
        return {cls._aliases.get(key, key): value for key, value in given.items()}

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_values(cls, value: object, info: ValidationInfo) -> object:
        """Refuse truth values for numbers: YAML reads ``yes`` and ``on`` as true, which Python takes for 1."""
        kinds = set(_kinds(cls.model_fields[info.field_name or ""].annotation))
        if kinds & {int, float} and bool not in kinds and _has_truth_value(value):
            raise ValueError("must be a number")
        return value


def _kinds(annotation: Any) -> list[Any]:
    """The types that an annotation is made of."""
    if parts := get_args(annotation):
        return [kind for part in parts for kind in _kinds(part)]
    return [annotation if isinstance(annotation, type) else type(annotation)]


def _has_truth_value(value: object) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return isinstance(value, bool) or any(isinstance(item, bool) for item in items)


def resolved(value: T, folder: Path) -> T:
    """Resolve every path in a section, at any depth, against the folder of the run file."""
    result: object = value
    match value:
        case Path():
            result = folder / value
        case tuple():
            result = tuple(resolved(item, folder) for item in value)
        case Section():
            before = {name: getattr(value, name) for name in type(value).model_fields}
            after = {name: resolved(field, folder) for name, field in before.items()}
            result = value.model_copy(update={name: after[name] for name in after if after[name] != before[name]})
    return cast(T, result)


def paths_in(value: object) -> Iterator[Path]:
    """Every path in a section, at any depth."""
    match value:
        case Path():
            yield value
        case tuple():
            for item in value:
                yield from paths_in(item)
        case Section():
            yield from value.paths()
