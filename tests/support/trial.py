"""A bank and its passive parties on small tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost import rng
from opboost.columns import OwnColumn
from opboost.desensitize import ColumnMechanism, MechanismSettings
from opboost.schema import ColumnSchema, Kind, Missing
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic
from parties.vertical.release_job import PassiveJob
from parties.vertical.simulation import drawn_from
from parties.vertical.training_job import ActiveJob

N_ROWS = 300


class Trial:
    """300 records: the bank's column and labels, three columns at the shop and one at the post.

    All numbers are integers in 1..33 and so is the mapped domain, so that a code without noise is the number itself
    (32 is a power of two: no rounding).
    """

    def __init__(self) -> None:
        draw = np.random.default_rng(5)
        numbers = {name: draw.integers(1, 34, N_ROWS).astype(float) for name in ("age", "spend", "visits", "parcels")}
        town = draw.choice(["north", "south", "east"], N_ROWS)
        score = sum(numbers.values()) / 33 + (town == "north") * 0.8 + draw.normal(0, 0.3, N_ROWS)
        self.labels = (score > np.median(score)).astype(float)
        self.age = numbers["age"]
        visits = pd.Series(numbers["visits"]).where(draw.random(N_ROWS) > 0.1)
        self.tables = {
            "shop": pd.DataFrame({"spend": numbers["spend"], "visits": visits, "town": town}),
            "post": pd.DataFrame({"parcels": numbers["parcels"]}),
        }
        self.ids = pd.Index([f"r{i:03}" for i in range(N_ROWS)], dtype=object)

    def schemas(self, party: str) -> tuple[ColumnSchema, ...]:
        if party == "post":
            return (ColumnSchema(name="parcels", lower=1, upper=33),)
        return (
            ColumnSchema(name="spend", lower=1, upper=33),
            ColumnSchema(name="visits", lower=1, upper=33, missing=Missing.CATEGORY),
            ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("north", "south", "east")),
        )

    def active(self, **changes: Any) -> ActiveJob:
        job: dict[str, Any] = {
            "party": "bank",
            "run_id": "spring",
            "id_digest": "d",
            "own": (OwnColumn("age", self.age),),
            "labels": self.labels,
            "weights": np.ones(N_ROWS),
            "loss": Logistic(),
            "parameters": BoostingParameters(n_estimators=4, max_depth=3),
        }
        return ActiveJob(**{**job, **changes})

    def passive(self, party: str, *, epsilon: float = 0.5, **changes: Any) -> PassiveJob:
        settings = MechanismSettings(epsilon=epsilon, domain_size=33)
        job: dict[str, Any] = {
            "party": party,
            "run_id": "spring",
            "id_digest": "d",
            "features": self.tables[party],
            "mechanisms": tuple(ColumnMechanism(schema, settings) for schema in self.schemas(party)),
            "rng": rng.seeded(11),
        }
        job |= changes
        return PassiveJob(**{"release": drawn_from(job["rng"]), **job})


@pytest.fixture(scope="session")
def trial() -> Trial:
    return Trial()
