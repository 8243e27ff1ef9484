"""The `align` section of a run file: record alignment."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from parties.config.section import Section
from parties.tables.sorted_ids import Duplicates

Method = Literal["psi", "psi-dh", "hashed", "prealigned"]


class AlignSection(Section):
    """The method of record alignment, and the treatment of repeated ids.

    The method is by default private set intersection, or with a list of `ids` none at all: then all parties must bring
    exactly the listed records.
    """

    method: Method | None = Field(
        None, description="How common records are found; by default `psi`, with `ids` `prealigned`."
    )
    duplicates: Duplicates = Field(
        "refuse", description="What to do with repeated ids; `drop` leaves out all their rows."
    )
    secret: Path | None = Field(None, description="File of the secret that all parties share, for `hashed`.")

    prepared: Path | None = Field(
        None,
        description="At a passive party with `psi-dh`: file that keeps its ids under a key for later runs; written by "
        "the first run, and again when the ids have changed.",
    )

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if self.prepared is not None and self.method != "psi-dh":
            raise ValueError("a `prepared` file goes with `method: psi-dh`")
        if (self.method == "hashed") != (self.secret is not None):
            raise ValueError("`method: hashed` and a `secret` file that all parties share go together")
        return self

    def method_for(self, ids: Path | None) -> Method:
        """The method of a run whose file lists `ids`, or does not."""
        return self.method or ("psi" if ids is None else "prealigned")
