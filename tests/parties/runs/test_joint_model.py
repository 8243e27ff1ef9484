"""Joint model: without passive parties it is an ensemble alone, and no two models share what they keep."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from opboost.fitting.noised_table import NoiseChoice
from opboost.privacy.guarantee import nothing_released
from opboost.trees.losses import SquaredError
from opboost.trees.tree import Ensemble
from opboost.uplift import ColumnUse, Uplift
from parties.errors import Disagreement
from parties.runs.joint_model import USES_FILE, JointModel, check_categories


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


def test_a_model_is_shown_in_notebooks_with_the_guarantee_of_each_party() -> None:
    shown = replace(model(), guarantees={"<shop>": nothing_released()})._repr_html_()
    assert "reg:squarederror" in shown
    assert "<p>&lt;shop&gt;:</p><p>No privacy guarantee." in shown


def test_trees_that_learned_through_the_noise_are_said_to_expect_exact_answers() -> None:
    caveats = {one: replace(model(), choice=one).caveat(desensitized=True) for one in (None, *NoiseChoice)}
    assert [one for one, words in caveats.items() if words] == [NoiseChoice.CORRECTED_AND_PLAIN, NoiseChoice.CORRECTED]
    assert replace(model(), choice=NoiseChoice.CORRECTED).caveat(desensitized=False) is None


def test_what_columns_add_is_kept_with_the_model() -> None:
    use = ColumnUse("shop", ("column 0",), Uplift(metric="auc", n_rows=1, n_held_out=1))
    (found,) = replace(model(), uses=(use,)).documents()[USES_FILE]["uses"]  # type: ignore[misc]
    assert found["columns"] == ("column 0",)


@pytest.mark.parametrize("listed", [("b", "a"), ("other", "a", "b"), ("a",), ()])
def test_columns_whose_categories_are_numbered_otherwise_than_in_training_are_refused(listed: tuple[str, ...]) -> None:
    trained = {"town": ["a", "b"], "age": []}
    for town in (("a", "b"), ("a", "b", "c")):
        check_categories(trained, {"town": town, "age": ()})
    with pytest.raises(Disagreement, match="other categories of column 'town'"):
        check_categories(trained, {"town": (*listed, "c") if listed else ()})
    with pytest.raises(Disagreement, match="other categories of column 'age'"):
        check_categories(trained, {"age": ("a",)})
