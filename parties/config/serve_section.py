"""The `serve` section of a passive party's run file: rate limits of prediction, and the demanded score policy."""

from __future__ import annotations

from pydantic import Field, model_validator

from parties.config.score_policy import RevealSection
from parties.config.section import PositiveCount, Section


class RoutedSection(Section):
    """Which records may be answered from exact values; `true` and `false` stand for new records."""

    new_records: bool = Field(True, description="Whether new records may be.")
    training_records: bool = Field(
        False, description="Whether those may be that were released for training, which takes off the noise."
    )

    @model_validator(mode="before")
    @classmethod
    def _of_bool(cls, value: object) -> object:
        return {"new_records": value} if isinstance(value, bool) else value


class ServeSection(Section):
    """Limits enforced before every answer, and the score policy that the active party must have.

    `batch_rows` is the most records of one request; `records_per_minute` and `routed_bits_per_day` are told in
    `parties.vertical.rate_limits`. What is left out is not limited.
    """

    batch_rows: PositiveCount | None = Field(None, description="Most records of one request.")
    records_per_minute: PositiveCount | None = Field(
        None, description="Most records asked for within any 60 seconds, known or not."
    )
    routed_bits_per_day: PositiveCount | None = Field(
        None, description="Most exact routing bits between one midnight UTC and the next."
    )
    reveal: RevealSection = Field(RevealSection(), description="Score policy that the active party must have.")

    @property
    def has_limits(self) -> bool:
        """Whether answers are counted over time, which takes a file."""
        return self.records_per_minute is not None or self.routed_bits_per_day is not None
