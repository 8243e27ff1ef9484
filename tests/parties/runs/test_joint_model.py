"""Joint model: without passive parties it is an ensemble alone, and no two models share what they keep."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from opboost.trees.losses import SquaredError
from opboost.trees.tree import Ensemble
from parties.runs.joint_model import JointModel


def model() -> JointModel:
    return JointModel(ensemble=Ensemble((), np.zeros(1), SquaredError(), ()))


def test_only_an_ensemble_is_needed_and_nothing_is_shared_between_models() -> None:
    first, second = model(), model()
    assert (first.guarantees, first.routers, first.fits, first.choice) == ({}, {}, (), None)
    assert first.guarantees is not second.guarantees
    assert first.routers is not second.routers


def test_a_finished_model_is_not_exchanged() -> None:
    with pytest.raises(FrozenInstanceError):
        model().ensemble = None  # type: ignore[misc, assignment]
