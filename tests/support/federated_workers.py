"""Workers of the federated framework on small tables."""

from __future__ import annotations

from typing import Any

from opboost.horizontal.federated.owners import FederatedAmongOwners
from opboost.horizontal.public_task import PublicTask
from opboost.rng import seeded
from parties.config.federated_section import FederatedSection
from parties.horizontal.worker import WorkerJob
from tests.support.workers import TERMS, rows

NAMES, BOUNDS = ("a", "b", "c"), [(0.0, 1.0)] * 3


def recipe(*, n_honest: int | None = None, epsilon: float = 2.0, **settings: Any) -> FederatedAmongOwners:
    section = FederatedSection(
        **{"n_estimators": 6, "max_depth": 2, "n_candidates": 8, "hessian_rounds": 2, **settings}
    )
    task = PublicTask(NAMES, section.grid(NAMES, BOUNDS), 0.0, 1.0, epsilon, True, True)
    return section.recipe(task, delta=1e-6, n_honest=n_honest)


def job(of: FederatedAmongOwners, place: int, **changes: Any) -> WorkerJob:
    bits = seeded(100 + place)
    X, y = rows(place)
    settings = {
        "party": f"w{place}",
        "run_id": "spring",
        "terms": TERMS,
        "threshold": 2,
        "recipe": of,
        "rng": bits,
        "make_rows": lambda: of.rows(X, y, rng=bits.fork("rows")),
    }
    return WorkerJob(**{**settings, **changes})
