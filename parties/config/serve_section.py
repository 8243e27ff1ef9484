"""The `serve` section of a passive party's run file: rate limits of prediction, and the demanded score policy."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from parties.config.score_policy import RevealSection
from parties.config.section import Count, Section


class ServeSection(Section):
    """Limits enforced before every answer, and the score policy that the active party must have.

    `batch_rows` is the most records of one request; `records_per_minute` and `routed_bits_per_day` are told in
    `parties.vertical.rate_limits`. What is left out is not limited.
    """

    batch_rows: Count | None = Field(None, description="Most records of one request.")
    records_per_minute: Count | None = Field(
        None, description="Most records asked for within any 60 seconds, known or not."
    )
    routed_bits_per_day: Count | None = Field(
        None, description="Most exact routing bits between one midnight UTC and the next."
    )
    reveal: RevealSection = Field(RevealSection(), description="Score policy that the active party must have.")

    def limits(self) -> RateLimits:
        """The limits that are kept on disk."""
        return RateLimits(records_per_minute=self.records_per_minute, routed_bits_per_day=self.routed_bits_per_day)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Rate limits of answers; None for no limit.

    Attributes
    ----------
    records_per_minute : int, optional
        Records asked for, known or not, within any 60 seconds.
    routed_bits_per_day : int, optional
        Bits that answer split tests from exact values, between one midnight UTC and the next.
    """

    records_per_minute: int | None = None
    routed_bits_per_day: int | None = None

    @property
    def is_needed(self) -> bool:
        """Whether there is any limit."""
        return self != RateLimits()
