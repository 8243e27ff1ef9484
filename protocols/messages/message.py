"""A message of any protocol, and the version of the protocols."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

# Version of the protocol, not of the package: raised when an older peer could misunderstand.
PROTOCOL_VERSION = 9

# Unknown fields that are refused one by one. Each wrong value makes an error of a kilobyte, and a header may hold four
# million: so of sequences and documents only the first wrong value is told, too (`protocols.messages.fields`).
MAX_UNKNOWN = 8


class Message(BaseModel):
    """A frozen value with checked fields; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    kind: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _check_number(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and len(fields) > len(cls.model_fields) + MAX_UNKNOWN:
            raise ValueError(f"{len(fields)} fields")
        return fields
