"""What records that arrive later add to a model: steps from its scores, or of several classes a mean."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.horizontal.recommended.later_records import margins_of, with_later_records
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError
from opboost.trees.tree import Ensemble, Feature
from tests.support.recommended_owners import recipe, records_of, trained

pytestmark = pytest.mark.usefixtures("one_thread")


def model(n_classes: int, seed: float = 1.0) -> Ensemble:
    found = trained(recipe(n_classes, None), [slice(None)])
    return Ensemble(tuple(tree.scaled(seed) for tree in found.trees), found.base_scores, found.loss, found.features)


@pytest.mark.parametrize("n_classes", [0, 2, 4])
@pytest.mark.parametrize(("n_before", "n_records", "share"), [(100, 25, 0.2), (100, 100, 0.5), (1, 3, 0.75), (0, 9, 1)])
def test_scores_are_those_of_the_model_and_of_the_new_records_by_their_share(
    n_classes: int, n_before: int, n_records: int, share: float
) -> None:
    earlier, later = model(n_classes), model(n_classes, -0.5)
    X, _ = records_of(n_classes, 40)
    kept, steps = (1 - share, share) if n_classes == 4 else (1.0, min(1.0, 2 * share))
    found = with_later_records(earlier, later, n_before, n_records, are_steps=n_classes < 4)
    np.testing.assert_allclose(found.scores(X), kept * earlier.scores(X) + steps * later.scores(X), atol=1e-12)
    if n_classes < 4:
        assert found.trees[: len(earlier.trees)] != ()
        for tree, before in zip(found.trees, earlier.trees, strict=False):
            assert tree.values.tolist() == before.values.tolist()


@pytest.mark.parametrize(("loss", "has_margins"), [(SquaredError(), True), (Logistic(), True), (Softmax(3), False)])
def test_several_classes_do_not_go_on_from_scores(loss: Loss, has_margins: bool) -> None:
    found = margins_of(Ensemble((), np.full(loss.n_outputs, 0.5), loss, (Feature("x"),)), np.zeros((4, 1)))
    assert (found is not None) == has_margins
    assert found is None or found.tolist() == [[0.5] * 4]


@pytest.mark.parametrize("counts", [(-3.0, 5.0), (0.0, 0.0), (5.0, -20.0)])
def test_noisy_numbers_of_records_make_no_share_beyond_the_whole(counts: tuple[float, float]) -> None:
    earlier, later = model(2), model(2)
    X, _ = records_of(2, 10)
    found = with_later_records(earlier, later, *counts, are_steps=True)
    steps = (found.scores(X) - earlier.scores(X)) / later.scores(X)
    assert 0 <= steps.min() <= steps.max() <= 1 + 1e-9
