"""Base margins, continued training, several labels and DART against XGBoost, with either engine.

Rounds that leave out all trees draw nothing that matters, so DART's weights can be compared tree by tree. Tolerances
are those of `test_xgboost_objectives`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opboost.columns import OwnColumn
from opboost.errors import DataError, ParameterError
from opboost.split_tests import EarlierModel, bind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import (
    AbsoluteError,
    AcceleratedFailure,
    Gamma,
    Logistic,
    Loss,
    Poisson,
    Several,
    Softmax,
    SquaredError,
    Tweedie,
)
from opboost.trees.model_file import load_model, save_model
from opboost.trees.tree import Ensemble
from opboost.vertical import train

xgboost = pytest.importorskip("xgboost")
pytestmark = pytest.mark.usefixtures("one_thread")

N_ROWS = 1500
SETTINGS: dict[str, Any] = {"n_estimators": 6, "max_depth": 3, "learning_rate": 0.3}
LOSSES = [SquaredError(), Logistic(), Poisson(), Gamma(), Tweedie(), Softmax(3), AbsoluteError()]
ENGINES = pytest.mark.parametrize("engine", ["native", "xgboost"])


def _rows(loss: Loss) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A table, labels, and margins of about their size."""
    rng = np.random.default_rng(11)
    table = rng.integers(0, [5, 40, 100], (N_ROWS, 3)) * np.array([1.0, 0.25, 0.5])
    table[rng.random(table.shape) < 0.1] = np.nan
    signal = np.nan_to_num(table) @ [0.3, 0.1, -0.02] + 0.4 * rng.normal(size=N_ROWS)
    signal -= signal.mean()
    match loss:
        case Logistic():
            labels = (signal > 0).astype(np.float64)
        case Softmax():
            labels = np.digitize(signal, [-0.3, 0.3]).astype(np.float64)
        case Poisson() | Tweedie():
            labels = rng.poisson(np.exp(signal)).astype(np.float64)
        case Gamma():
            labels = np.exp(signal)
        case _:
            labels = signal
    return table, labels, 0.3 * rng.normal(size=(loss.n_outputs, N_ROWS))


def _ours(loss: Loss, *, margins: Any = (), labels: np.ndarray | None = None, **settings: Any) -> Ensemble:
    table, truth, _ = _rows(loss.singles[0])
    train_settings = {key: settings.pop(key) for key in ("engine", "earlier") if key in settings}
    columns = [OwnColumn(f"f{i}", values) for i, values in enumerate(table.T)]
    trained = train(
        columns,
        truth if labels is None else labels,
        np.ones(N_ROWS),
        loss=loss,
        parameters=BoostingParameters(**SETTINGS | settings),
        margins=[OwnColumn(f"m{k}", one) for k, one in enumerate(margins)],
        **train_settings,
    )
    return bind(trained, {})


def _xgboost(loss: Loss, margins: np.ndarray, n_rounds: int = 6, model: Any = None, **settings: Any) -> Any:
    table, labels, _ = _rows(loss)
    rows = xgboost.QuantileDMatrix(table, labels, weight=np.ones(N_ROWS), base_margin=margins.T, max_bin=256)
    parameters = {"objective": loss.name, "max_depth": 3, "eta": 0.3, "base_score": 0.5, "seed": 0, "nthread": 1}
    parameters |= {"num_class": 3} if isinstance(loss, Softmax) else {}
    booster = xgboost.train(parameters | settings, rows, num_boost_round=n_rounds, xgb_model=model)
    return booster, booster.predict(rows, output_margin=True).reshape(N_ROWS, -1)


def _features(model: Ensemble, loss: Loss, margins: np.ndarray) -> np.ndarray:
    table, _, _ = _rows(loss)
    return np.column_stack([table, *margins[: len(model.offsets)]])


@ENGINES
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_margins_are_where_scores_start(loss: Loss, engine: str) -> None:
    _, _, margins = _rows(loss)
    model = _ours(loss, margins=margins, engine=engine)
    assert model.base_scores.tolist() == [0.0] * loss.n_outputs
    ours = model.scores(_features(model, loss, margins))
    np.testing.assert_allclose(ours, _xgboost(loss, margins)[1], atol=1e-4)
    without = _ours(loss, engine=engine)
    assert np.abs(ours - without.scores(_rows(loss)[0])).max() > 0.05


@ENGINES
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_continued_training_equals_training_at_once(loss: Loss, engine: str) -> None:
    at_once, begun = _ours(loss, n_estimators=6, engine=engine), _ours(loss, n_estimators=4, engine=engine)
    model = _ours(loss, n_estimators=2, engine=engine, earlier=EarlierModel(begun))
    assert len(model.trees) == 6 * loss.n_outputs
    table, _, _ = _rows(loss)
    np.testing.assert_allclose(model.scores(table), at_once.scores(table), atol=1e-5)
    for ours, theirs in zip(model.trees, begun.trees, strict=False):
        np.testing.assert_array_equal(ours.thresholds, theirs.in_levels().thresholds)
    if engine == "native" and isinstance(loss, Logistic):
        for ours, theirs in zip(model.trees, at_once.trees, strict=True):
            np.testing.assert_array_equal(ours.in_levels().values, theirs.in_levels().values)
    if engine == "native":
        start = np.tile(begun.base_scores[:, None], N_ROWS)
        booster, _ = _xgboost(loss, start, 4)
        np.testing.assert_allclose(model.scores(table), _xgboost(loss, start, 2, booster)[1], atol=1e-4)


def test_a_model_may_be_continued_on_other_records() -> None:
    """Cuts of the earlier model are kept beside those of the new records."""
    table, labels, _ = _rows(SquaredError())
    begun, parameters = _ours(SquaredError()), BoostingParameters(**SETTINGS)
    columns = [OwnColumn(f"f{i}", values[:400] + 0.01) for i, values in enumerate(table.T)]
    more = train(
        columns, labels[:400] + 1, np.ones(400), loss=SquaredError(), parameters=parameters, earlier=EarlierModel(begun)
    )
    model, rows = bind(more, {}), table[:400] + 0.01
    np.testing.assert_allclose(replace(model, trees=model.trees[:6]).scores(rows), begun.scores(rows), rtol=1e-12)
    assert (
        np.abs(model.scores(rows)[:, 0] - labels[:400] - 1).mean()
        < np.abs(begun.scores(rows)[:, 0] - labels[:400]).mean()
    )


def test_a_model_of_other_columns_cannot_be_continued() -> None:
    begun = _ours(SquaredError())
    with pytest.raises(ParameterError, match="cuts column 'f"):
        train(
            [OwnColumn("g", np.arange(9.0))],
            np.arange(9.0),
            np.ones(9),
            loss=SquaredError(),
            parameters=BoostingParameters(),
            earlier=EarlierModel(begun),
        )


@ENGINES
@pytest.mark.parametrize("normalize_type", ["tree", "forest"])
@pytest.mark.parametrize("loss", [SquaredError(), Logistic(), Softmax(3)], ids=lambda loss: loss.name)
def test_rounds_that_leave_out_all_trees_weigh_them_as_xgboost_does(
    loss: Loss, normalize_type: str, engine: str
) -> None:
    settings = {"booster": "dart", "rate_drop": 1.0, "normalize_type": normalize_type}
    model = _ours(loss, engine=engine, **settings)
    start = np.tile(model.base_scores[:, None], N_ROWS)
    table, _, _ = _rows(loss)
    np.testing.assert_allclose(model.scores(table), _xgboost(loss, start, **settings)[1], atol=2e-5)
    assert np.abs(model.scores(table) - _ours(loss, engine=engine).scores(table)).max() > 0.05


@pytest.mark.parametrize("given", [{"rate_drop": 0.0}, {"rate_drop": 0.5, "skip_drop": 1.0}], ids=str)
def test_dart_without_a_tree_left_out_is_boosting(given: dict[str, float]) -> None:
    table, _, _ = _rows(Logistic())
    ours = _ours(Logistic(), booster="dart", **given).scores(table)
    np.testing.assert_array_equal(ours, _ours(Logistic()).scores(table))


@ENGINES
@pytest.mark.parametrize("single", [SquaredError(), AbsoluteError()], ids=lambda loss: loss.name)
def test_several_labels_are_models_of_their_own(single: Loss, engine: str, tmp_path: Any) -> None:
    table, label, _ = _rows(single)
    labels = np.column_stack([label, 1000 * np.sin(label), label**2])
    loss = Several(single, 3)
    model = _ours(loss, labels=labels, engine=engine)
    for k in range(3):
        alone = _ours(single, labels=labels[:, k].copy(), engine=engine)
        np.testing.assert_array_equal(model.predict(table)[:, k], alone.predict(table))
    save_model(model, tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert again.loss == loss
    np.testing.assert_array_equal(again.predict(table), model.predict(table))


def test_several_labels_are_xgboosts_targets() -> None:
    table, label, _ = _rows(SquaredError())
    labels = np.column_stack([label, np.sin(label)])
    model = _ours(Several(SquaredError(), 2), labels=labels)
    rows = xgboost.QuantileDMatrix(table, labels, base_margin=np.tile(model.base_scores, (N_ROWS, 1)))
    booster = xgboost.train({"max_depth": 3, "eta": 0.3, "nthread": 1}, rows, num_boost_round=6)
    np.testing.assert_allclose(model.predict(table), booster.predict(rows), atol=2e-5)


def test_labels_of_another_number_are_refused() -> None:
    with pytest.raises(DataError, match="of 2 labels got labels of shape"):
        _ours(Several(SquaredError(), 2), labels=np.zeros((N_ROWS, 3)))
    with pytest.raises(ParameterError, match="objective of one score"):
        Several(Softmax(3), 2)


@ENGINES
@pytest.mark.parametrize("noise", ["normal", "logistic", "extreme"])
def test_intervals_of_failure_times_are_xgboosts(noise: Any, engine: str) -> None:
    table, signal, _ = _rows(SquaredError())
    rng, times = np.random.default_rng(5), np.exp(signal)
    lower = times * rng.uniform(0.5, 1, N_ROWS)
    upper = np.where(rng.random(N_ROWS) < 0.2, 0.0, times * rng.uniform(1, 2, N_ROWS))
    upper = np.where(rng.random(N_ROWS) < 0.3, lower, upper)
    loss = AcceleratedFailure(noise, 1.1)
    model = _ours(loss, labels=np.column_stack([lower, upper]), engine=engine)
    rows = xgboost.DMatrix(
        table,
        label_lower_bound=lower,
        label_upper_bound=np.where(upper == 0, np.inf, upper),
        weight=np.ones(N_ROWS),
        base_margin=np.full(N_ROWS, model.base_scores[0]),
    )
    settings = {"objective": loss.name, **loss.settings, "max_depth": 3, "eta": 0.3, "nthread": 1}
    expected = xgboost.train(settings, rows, num_boost_round=6).predict(rows)
    np.testing.assert_allclose(model.predict(table), expected, rtol=2e-4)


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(DataError, match="the lower one first"):
        _ours(AcceleratedFailure(), labels=np.tile([2.0, 1.0], (N_ROWS, 1)))
