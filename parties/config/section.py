"""A section of a run file: fixed once read, and with no other keys than it knows."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen value with checked fields; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
