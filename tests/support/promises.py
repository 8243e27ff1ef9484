"""Guarantees as a passive party sends them with an offer."""

from __future__ import annotations

from typing import Any

from opboost.privacy.guarantee import ColumnGuarantee, Guarantee

COLUMN = ColumnGuarantee(
    column="c",
    mechanism="global",
    law="clamped",
    epsilon=0.1,
    unit="",
    domain_loss=1.0,
    missing_epsilon=0.0,
    parameters={"epsilon": 0.1, "domain_size": 100.0},
)


def promise_of(n_columns: int) -> dict[str, Any]:
    """The guarantee of so many columns."""
    return Guarantee(
        notion="dLDP",
        epsilon=1.0,
        domain_loss=2.0,
        unit="",
        neighbours="",
        protected="",
        not_protected=(),
        columns=(COLUMN,) * n_columns,
    ).to_dict()
