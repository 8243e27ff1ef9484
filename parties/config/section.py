"""A section of a run file: fixed once read, with no other keys than it knows, and with numbers where they are due."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class Section(BaseModel):
    """A frozen value with checked fields; unknown keys are refused, and truth values in the place of numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_values(cls, value: object, info: ValidationInfo) -> object:
        """YAML reads ``yes`` and ``on`` as true, which Python takes for 1."""
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
