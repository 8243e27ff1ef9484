"""The `http` section of the active party's run file: how `opboost serve` answers, and whom."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from parties.config.addresses import HostAndPort, host_and_port
from parties.config.section import PositiveCount, Section
from protocols.transport.keys import is_loopback

Seconds = Annotated[float, Field(gt=0, le=60)]


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
