"""The passive party's job: its greeting tells what is planned, and its guarantee what is not protected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.desensitize import ColumnMechanism, MechanismSettings
from opboost.errors import ParameterError
from opboost.schema import Kind
from protocols.messages.vertical import Role, Terms


def test_a_greeting_tells_rows_columns_and_what_they_lose(trial: Any) -> None:
    job = trial.passive("shop", agreed=Terms(tests=3))
    hello = job.hello()
    assert (hello.role, hello.n_rows, hello.names) == (Role.PASSIVE, 300, ("c0", "c1", "c2", "c3", "c4"))
    assert (hello.plan.columns, hello.plan.epsilon) == (5, 0.5)
    assert hello.plan.total_epsilon == pytest.approx(job.guarantee().epsilon)
    assert (hello.agreed, hello.plan.share_thresholds, hello.plan.by_cells) == (Terms(tests=3), False, False)
    assert trial.passive("shop", n_cells=8).hello().plan.by_cells


def test_the_plan_announces_the_largest_budget_per_point_of_the_columns_that_have_points(trial: Any) -> None:
    mechanisms = tuple(
        ColumnMechanism(schema, MechanismSettings(epsilon=0.3 if schema.kind is Kind.UNORDERED else 0.05))
        for schema in trial.schemas("shop")
    )
    assert trial.passive("shop", mechanisms=mechanisms).hello().plan.epsilon == 0.05
    assert trial.passive("shop", mechanisms=mechanisms[2:]).hello().plan.epsilon == 0.0


def test_before_alignment_there_is_nothing_to_prove_and_no_release(trial: Any) -> None:
    job = trial.passive("shop", id_digest=None)
    assert job.password is None
    order = np.arange(300)[::-1].copy()
    assert trial.passive("shop").password != trial.passive("shop", order=order).password
    made = {"party": "shop", "run_id": "r", "id_digest": "d", "features": job.features, "mechanisms": job.mechanisms}
    with pytest.raises(ParameterError, match="has no account to release from"):
        type(job)(**made, rng=job.rng).release(job.mechanisms, None)


def test_what_is_answered_exactly_is_not_protected(trial: Any) -> None:
    routed, refused = (trial.passive("shop", allow_routed=allowed).guarantee() for allowed in (True, False))
    assert set(refused.not_protected) < set(routed.not_protected)
