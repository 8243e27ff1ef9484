"""Records that put noise on their own contributions."""

from __future__ import annotations

import numpy as np
import pytest

from opboost import FederatedGBDTClassifier, rng
from opboost.errors import AccountError
from opboost.horizontal.federated.local_noise import LocallyNoisedRows, label_distance
from opboost.horizontal.federated.training import Choices, train
from opboost.horizontal.federated.weight_updates import LeafRule, weight_update
from opboost.horizontal.rows.client_rows import ClientRows
from opboost.horizontal.splits.split_candidates import uniform_candidates

pytestmark = pytest.mark.usefixtures("one_thread")

COLUMNS = uniform_candidates([(0.0, 1.0)] * 3, 8)


def data(n_rows: int = 300):
    generator = np.random.default_rng(0)
    X = generator.random((n_rows, 3))
    X[:20, 1] = np.nan
    return X, (X[:, 0] > 0.4).astype(float)


def local(update, multiplier=0.0, n_releases=9):
    X, y = data()
    return LocallyNoisedRows(
        X, y, columns=COLUMNS, update=update, multiplier=multiplier, n_releases=n_releases, rng=rng.seeded(0)
    )


@pytest.mark.parametrize("split", ["hist", "pr", "tr"])
@pytest.mark.parametrize("name", ["newton", "averaging"])
def test_without_noise_the_sums_are_those_of_any_holder(split, name):
    update = weight_update(name, is_classification=True)
    choices = Choices(split_method=split, n_trees=5, max_depth=3, batch_size=2, refining="equal_mass")
    plain = ClientRows(
        *data(), columns=COLUMNS, gradients=update.gradients, clipping=update.clipping, walks=split == "tr"
    )
    leaf = LeafRule(learning_rate=0.3, reg_lambda=1.0, max_leaf=2.0)
    one, two = (
        train(holder, COLUMNS, choices, update=update, leaf=leaf, multiplier=0.0, rng=rng.seeded(1))
        for holder in (plain, local(update))
    )
    for a, b in zip(one.trees, two.trees, strict=True):
        np.testing.assert_array_equal(a.columns, b.columns)
        np.testing.assert_array_equal(a.values, b.values)


def test_a_record_releases_once_per_batch_and_no_more_than_was_paid_for():
    holder = local(weight_update("newton", is_classification=True), multiplier=3.0, n_releases=2)
    holder.start_tree(0)
    first = holder.totals(np.zeros(1, np.int32))
    holder.start_tree(1)
    np.testing.assert_array_equal(holder.totals(np.zeros(1, np.int32)), first)
    holder.start_tree(0)
    assert (holder.totals(np.zeros(1, np.int32)) != first).any()
    with pytest.raises(AccountError, match="nothing was released"):
        holder.start_tree(0)


@pytest.mark.parametrize("is_classification", [True, False])
@pytest.mark.parametrize("is_printed", [True, False])
@pytest.mark.parametrize("name", ["newton", "gradient", "averaging"])
def test_noise_covers_any_change_of_a_label(name, is_printed, is_classification):
    update = weight_update(name, is_classification=is_classification, is_printed=is_printed, max_grad=0.5)
    scores = np.linspace(-30, 30, 4001)
    labels = (0.0, 1.0) if is_classification else (-1.0, -0.2, 1.0)
    codes = [
        np.stack(update.clipping.encode(*update.gradients(scores, np.full(len(scores), label)))) for label in labels
    ]
    scales = np.array(update.scales)[:, None]
    found = max(np.hypot(*((a - b) / scales)).max() for a in codes for b in codes)
    assert found <= label_distance(update) * (1 + 1e-6)
    assert found > 0.999 * label_distance(update)  # less would promise too much


def test_the_promise_is_for_labels_only_and_says_so():
    """Trap 10."""
    X, y = data()
    model = FederatedGBDTClassifier.ldp(epsilon=8.0, delta=1e-5, bounds=(0, 1), n_estimators=3).fit(X, y)
    assert "label" in model.guarantee_.neighbours
    assert "label-LDP only" in str(model.guarantee_)
    assert model.guarantee_.epsilon <= 8.0
    assert model.n_queries_ == 3
