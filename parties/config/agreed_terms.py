"""What a run file says was agreed with a peer; compared with what the peer plans, before anything is drawn."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from opboost.privacy.laws import Law
from parties.config.protection import Epsilon, Finite
from protocols.messages.vertical import Terms


class AgreedSection(BaseModel):
    """What the peer will do; what is left out is not compared.

    `objective` is the active party's, and so are `tests`, how many split tests its model makes at most; the rest is the
    passive party's: the number of its columns, the one mechanism and law of all of them, the largest budget of a column
    per unit of its mapped domain, the budget of all columns between neighbouring records, and whether it shares its
    thresholds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    objective: Literal["binary:logistic", "reg:squarederror", "count:poisson", "multi:softprob"] | None = None
    tests: Annotated[int, Field(ge=0)] | None = None
    columns: int | None = None
    mechanism: Literal["global", "local", "adj"] | None = None
    law: Law | None = None
    epsilon: Epsilon | None = None
    total_epsilon: Finite | None = None
    share_thresholds: bool | None = None

    def terms(self) -> Terms:
        """The same as it travels."""
        return Terms(**{**self.model_dump(), "law": None if self.law is None else self.law.value})
