"""Sections on answers: `serve` and `allow_routed` of a passive party's run file, and `http` of the active party's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from parties.config.addresses import HostAndPort, host_and_port
from parties.config.score_policy import RevealSection
from parties.config.section import PositiveCount, Section
from protocols.transport.keys import is_loopback

Seconds = Annotated[float, Field(gt=0, le=60)]


class RoutedSection(Section):
    """Which records may be answered from exact values; `true` and `false` stand for new records."""

    new_records: bool = Field(True, description="Whether new records may be.")
    training_records: bool = Field(
        False, description="Whether those may be that were released for training, which takes off the noise."
    )

    @property
    def words(self) -> str:
        """Which records may be, if any may."""
        return f"new records{' and those released for training' * self.training_records}"

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


class HttpSection(Section):
    """Address, callers and limits of the HTTP service. Off loopback it needs TLS; everywhere it needs tokens."""

    listen: HostAndPort = Field(description="Address of the service, `host:port`.")
    tokens: Path = Field(description="File of bearer tokens, a caller's name and its token a line; mode 0600.")
    certificate: Path | None = Field(None, description="TLS certificate with its chain, PEM; required off loopback.")
    private_key: Path | None = Field(None, description="Private key of the certificate, PEM.")
    mode: Literal["routed", "desensitized"] = Field("routed", description="How the passive parties answer.")
    shadow: Path | None = Field(
        None, description="Run file of a second model, which scores every request too and whose scores are compared."
    )
    timeout: Seconds = Field(2.0, description="Seconds until a request is given up; as long for its body.")
    grace: Seconds = Field(10.0, description="Seconds that requests at hand have when the service stops.")
    max_records: PositiveCount = Field(10_000, description="Most records of one request.")
    max_body_bytes: PositiveCount = Field(4_000_000, description="Most bytes of a request's body.")
    max_waiting: PositiveCount = Field(256, description="Most requests that wait; more are refused with 503.")

    @model_validator(mode="after")
    def _check_encryption(self) -> Self:
        if (self.certificate is None) is not (self.private_key is None):
            raise ValueError("give both certificate and private_key, or neither")
        if self.certificate is None and not is_loopback(host_and_port(self.listen)[0]):
            raise ValueError(f"{self.listen} is not on loopback, where certificate and private_key are needed")
        return self
