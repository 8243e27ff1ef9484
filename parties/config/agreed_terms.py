"""The `agreed` section: terms agreed with a peer, compared with its plan before anything is drawn."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from opboost.privacy.laws import Law
from opboost.trees.losses import Objective
from parties.config.protection import Epsilon, Finite
from parties.config.section import MOST_COUNT, Section
from protocols.messages.vertical import Terms

AgreedCount = Annotated[int, Field(ge=0, le=MOST_COUNT)]


class AgreedSection(Section):
    """Terms that the peer must keep; those left out are not compared.

    `objective` is the active party's, and so are `tests`, how many split tests its model makes at most. The rest is the
    passive party's: the number of its columns of ranks, the mechanism and noise distribution of all of them, the
    largest budget of a column per point of its mapped domain, the budget of all columns between neighbouring records,
    which differ by one step of its own in every column, and whether it shares its thresholds.
    """

    objective: Objective | None = Field(None, description="The active party's objective.")
    tests: AgreedCount | None = Field(None, description="Most split tests that its model asks the passive party for.")
    columns: AgreedCount | None = Field(
        None,
        description="Number of the passive party's columns of ranks, one per category of an unordered column; 1,000 at "
        "most where nothing is said.",
    )
    mechanism: Literal["global", "local", "adj"] | None = Field(None, description="The mechanism of all its columns.")
    law: Law | None = Field(None, description="The noise distribution of all its columns.")
    epsilon: Epsilon | None = Field(None, description="Largest budget of a column, per point of its mapped domain.")
    total_epsilon: Finite | None = Field(
        None, description="Budget of all columns between records that differ by one step in each."
    )
    share_thresholds: bool | None = Field(None, description="Whether it shares its thresholds.")

    def terms(self) -> Terms:
        """The terms as a message."""
        return Terms(**{**self.model_dump(), "law": None if self.law is None else self.law.value})
