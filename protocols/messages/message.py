"""A message of any protocol, and the version of the protocols."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

# Version of the protocol, not of the package: raised when an older peer could misunderstand.
PROTOCOL_VERSION = 5


class Message(BaseModel):
    """A frozen value with checked fields; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    kind: ClassVar[str]
