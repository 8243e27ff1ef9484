"""Scores against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from opboost import OpBoostClassifier
from opboost.errors import DataError, ParameterError
from opboost.metrics import (
    auc,
    concordance,
    default_metric,
    error_rate,
    evaluate,
    gini,
    ks,
    log_loss,
    mae,
    metric_by_name,
    metrics_of,
    poisson_nloglik,
    r2,
    rmse,
)
from opboost.trees.losses import (
    AbsoluteError,
    AcceleratedFailure,
    Cox,
    Gamma,
    Logistic,
    Loss,
    Poisson,
    PseudoHuber,
    Quantiles,
    Softmax,
    SquaredError,
    Tweedie,
)
from parties.config.model_section import ModelSection

# Both sides sum at most 60 doubles, in another order.
ROUNDING = 1e-9

seeds = st.integers(0, 2**32 - 1)


def two_classes(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels of both classes and probabilities with ties, none of them 0 or 1."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    labels = np.append([0.0, 1.0], rng.integers(0, 2, n))
    return labels, rng.integers(1, rng.integers(2, 40), n + 2) / 40


def many_classes(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    n_classes = int(rng.integers(3, 6))
    labels = np.append(np.arange(n_classes), rng.integers(0, n_classes, 50)).astype(float)
    return labels, rng.dirichlet(np.ones(n_classes), len(labels))


def numbers(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.normal(size=int(rng.integers(2, 60))) * 10.0 ** rng.integers(-3, 4)
    return labels, labels + rng.normal(size=len(labels))


@given(seeds)
@settings(max_examples=100, deadline=None)
def test_the_area_under_the_curve_is_scikit_learns_with_ties(seed):
    labels, scores = two_classes(seed)
    assert auc(labels, scores) == pytest.approx(sklearn_metrics.roc_auc_score(labels, scores), rel=ROUNDING)


@given(seeds)
@settings(max_examples=50, deadline=None)
def test_the_area_under_the_curve_is_the_share_of_pairs_in_order(seed):
    labels, scores = two_classes(seed)
    gaps = np.subtract.outer(scores[labels == 1], scores[labels == 0])
    assert auc(labels, scores) == pytest.approx(np.mean((gaps > 0) + 0.5 * (gaps == 0)), rel=ROUNDING)


@pytest.mark.parametrize(("scores", "expected"), [([0, 1], 1.0), ([1, 0], 0.0), ([1, 1], 0.5)])
def test_the_area_under_the_curve_of_a_perfect_a_reversed_and_a_constant_score(scores, expected):
    assert auc(np.array([0.0, 1.0]), np.array(scores, dtype=float)) == expected


@pytest.mark.parametrize("labels", [[0.0, 0.0], [1.0, 1.0], []])
def test_the_area_under_the_curve_needs_both_classes(labels):
    with pytest.raises(DataError, match="labels of both classes"):
        auc(np.array(labels), np.zeros(len(labels)))


@given(seeds)
@settings(max_examples=50, deadline=None)
def test_the_log_loss_is_scikit_learns_for_two_and_for_many_classes(seed):
    for labels, probabilities in (two_classes(seed), many_classes(seed)):
        expected = sklearn_metrics.log_loss(labels, probabilities)
        assert log_loss(labels, probabilities) == pytest.approx(expected, rel=ROUNDING)


def test_a_certain_and_wrong_prediction_costs_much_and_not_infinity():
    assert log_loss(np.array([1.0]), np.array([0.0])) == pytest.approx(-np.log(1e-15))


@given(seeds)
@settings(max_examples=50, deadline=None)
def test_errors_of_numbers_are_scikit_learns(seed):
    labels, predicted = numbers(seed)
    assert rmse(labels, predicted) == pytest.approx(sklearn_metrics.root_mean_squared_error(labels, predicted))
    assert mae(labels, predicted) == pytest.approx(sklearn_metrics.mean_absolute_error(labels, predicted))
    assert r2(labels, predicted) == pytest.approx(sklearn_metrics.r2_score(labels, predicted), rel=ROUNDING)


@given(seeds)
@settings(max_examples=50, deadline=None)
def test_the_error_rate_is_one_minus_scikit_learns_accuracy(seed):
    labels, probabilities = many_classes(seed)
    chosen = probabilities.argmax(axis=1).astype(float)
    assert error_rate(labels, chosen) == pytest.approx(1 - sklearn_metrics.accuracy_score(labels, chosen))


def test_a_regression_is_headed_by_the_share_of_variance_explained():
    labels, predicted = numbers(1)
    assert evaluate(SquaredError(), labels, predicted) == {"r2": r2(labels, predicted), "rmse": rmse(labels, predicted)}
    assert next(iter(evaluate(SquaredError(), labels, predicted))) == "r2"


def test_two_classes_are_headed_by_the_area_under_the_curve_and_cut_at_one_half():
    labels, probabilities = np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.5, 0.51, 0.2, 0.1])
    scores = evaluate(Logistic(), labels, probabilities)
    assert list(scores) == ["auc", "error", "logloss"]
    assert scores["auc"] == auc(labels, probabilities)
    assert scores["error"] == 0.25
    assert scores["logloss"] == log_loss(labels, probabilities)


def test_many_classes_are_headed_by_the_accuracy_of_the_likeliest_class():
    labels, probabilities = many_classes(2)
    scores = evaluate(Softmax(3), labels, probabilities)
    assert list(scores) == ["accuracy", "mlogloss"]
    assert scores["accuracy"] == pytest.approx(np.mean(probabilities.argmax(axis=1) == labels))
    assert scores["mlogloss"] == log_loss(labels, probabilities)


@given(seeds)
@settings(max_examples=50, deadline=None)
def test_the_likelihood_of_counts_is_scipys(seed):
    rng = np.random.default_rng(seed)
    means = rng.uniform(0.01, 20, 40)
    counts = rng.poisson(means).astype(float)
    assert poisson_nloglik(counts, means) == pytest.approx(-stats.poisson.logpmf(counts, means).mean(), rel=ROUNDING)


def test_a_mean_of_zero_costs_much_and_not_infinity():
    assert np.isfinite(poisson_nloglik(np.array([3.0]), np.array([0.0])))


LOSSES: list[Loss] = [Logistic(), SquaredError(), Softmax(3), Poisson()]
SCORES = {
    "binary:logistic": {"auc", "aucpr", "error", "gini", "ks", "logloss", "mae", "rmse"},
    "reg:squarederror": {"mae", "rmse", "poisson-nloglik"},
    "count:poisson": {"mae", "rmse", "poisson-nloglik"},
    "multi:softprob": {"merror", "mlogloss"},
}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_metric_is_refused_for_an_objective_whose_predictions_it_does_not_score(loss):
    for name in sorted({name for names in SCORES.values() for name in names} | {"", "RMSE"}):
        if name in SCORES[loss.name]:
            metric = metric_by_name(name, loss)
            assert (metric.name, metric.is_higher_better) == (name, name in ("auc", "aucpr", "gini", "ks"))
        else:
            with pytest.raises(ParameterError, match=f"eval_metric '{name}' does not score .* {loss.name} predicts"):
                metric_by_name(name, loss)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_default_metric_is_xgboosts(loss):
    xgboost = pytest.importorskip("xgboost")
    rows = xgboost.DMatrix(np.arange(6.0)[:, None], [0, 1, 2, 0, 1, 2] if loss.n_outputs > 1 else [0, 1, 0, 1, 0, 1])
    found: dict = {}
    parameters = {"objective": loss.name, "nthread": 1} | ({"num_class": 3} if loss.n_outputs > 1 else {})
    xgboost.train(parameters, rows, 1, evals=[(rows, "v")], evals_result=found, verbose_eval=False)
    assert list(found["v"]) == [default_metric(loss)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_every_metric_is_xgboosts(loss):
    """Predictions as margins of a model without trees; XGBoost computes in single precision."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    n_classes = {"binary:logistic": 2, "multi:softprob": 3}.get(loss.name, 9)
    labels = rng.integers(0, n_classes, 200).astype(float)
    scores = rng.normal(size=(200, loss.n_outputs)).round(1)
    rows = xgboost.DMatrix(np.zeros((200, 1)), labels, base_margin=scores if loss.n_outputs > 1 else scores[:, 0])
    names = sorted(SCORES[loss.name] - {"gini", "ks"})
    parameters = {"objective": loss.name, "nthread": 1, "eta": 0.0, "eval_metric": names}
    found: dict = {}
    xgboost.train(
        parameters | ({"num_class": 3} if loss.n_outputs > 1 else {}),
        rows,
        1,
        evals=[(rows, "v")],
        evals_result=found,
        verbose_eval=False,
    )
    predictions = loss.predictions(scores)
    ours = {name: metric_by_name(name, loss).of(labels, predictions) for name in names}
    if loss.name == "reg:squarederror":
        # Here some of the predicted numbers are no means of counts; XGBoost's floor under them is another.
        ours.pop("poisson-nloglik")
    assert ours == pytest.approx({name: found["v"][name][0] for name in ours}, rel=1e-5)


def test_probabilities_of_exactly_one_half_count_as_label_zero():
    metric = metric_by_name("error", Logistic())
    assert metric.of(np.array([0.0, 1.0]), np.array([0.5, 0.5])) == 0.5


def test_counts_are_headed_by_their_likelihood():
    labels, means = np.array([0.0, 3.0, 1.0]), np.array([0.5, 2.0, 1.5])
    scores = evaluate(Poisson(), labels, means)
    assert list(scores) == ["poisson-nloglik", "rmse"]
    assert scores == {"poisson-nloglik": poisson_nloglik(labels, means), "rmse": rmse(labels, means)}


@given(seeds)
@settings(max_examples=50, deadline=None)
def test_gini_and_ks_are_scikit_learns_and_scipys(seed):
    labels, scores = two_classes(seed)
    assert gini(labels, scores) == pytest.approx(2 * sklearn_metrics.roc_auc_score(labels, scores) - 1, abs=ROUNDING)
    expected = stats.ks_2samp(scores[labels == 1], scores[labels == 0], method="asymp").statistic
    assert ks(labels, scores) == pytest.approx(expected, abs=ROUNDING)


@given(seeds)
@settings(max_examples=50, deadline=None)
def test_concordance_counts_the_pairs_that_are_in_order(seed):
    """A row without an event outlives those of its own time."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    labels = rng.integers(1, 8, n) * rng.choice([-1.0, 1.0], n)
    predicted = rng.integers(0, 6, n) * 1.0
    n_pairs, n_ordered = 0, 0.0
    for i in np.flatnonzero(labels > 0):
        for j in range(n):
            if labels[i] < abs(labels[j]) or (labels[j] == -labels[i]):
                n_pairs += 1
                n_ordered += 0.5 * (predicted[i] == predicted[j]) + (predicted[i] < predicted[j])
    assert concordance(labels, predicted) == pytest.approx(n_ordered / n_pairs if n_pairs else 0.5, abs=ROUNDING)


OTHERS = [
    (Gamma(), "gamma-deviance"),
    (Tweedie(1.3), "tweedie-nloglik@1.3"),
    (Quantiles((0.1, 0.6)), "quantile"),
    (PseudoHuber(0.7), "mphe"),
    (AbsoluteError(), "mae"),
]


@pytest.mark.parametrize(("loss", "name"), OTHERS, ids=lambda value: getattr(value, "name", None))
def test_the_likelihood_of_an_objective_is_xgboosts(loss, name):
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    labels, scores = rng.gamma(2.0, size=200), rng.normal(size=(200, loss.n_outputs))
    rows = xgboost.DMatrix(np.zeros((200, 1)), labels, base_margin=scores if loss.n_outputs > 1 else scores[:, 0])
    found: dict = {}
    xgboost.train(
        {"objective": loss.name, "nthread": 1, "eta": 0.0, **loss.settings, "eval_metric": name},
        rows,
        1,
        evals=[(rows, "v")],
        evals_result=found,
        verbose_eval=False,
    )
    assert default_metric(loss) == name
    metric = metric_by_name(name, loss)
    assert metric.of(labels, loss.predictions(scores)) == pytest.approx(found["v"][name][0], rel=1e-5)
    assert not metric.is_higher_better
    assert next(iter(evaluate(loss, labels, loss.predictions(scores)))) == name


@pytest.mark.parametrize("loss", [Cox(), AcceleratedFailure()], ids=lambda loss: loss.name)
def test_survival_is_scored_by_concordance(loss):
    labels, scores = np.array([1.0, -2.0, 3.0]), np.array([[2.0], [1.0], [0.5]])
    right = 1.0 if loss.name == "survival:cox" else 0.0
    assert evaluate(loss, labels, loss.predictions(scores)) == {"cindex": right}


def test_a_metric_that_is_named_twice_is_one_and_the_last_one_decides() -> None:
    assert [one.name for one in metrics_of(["auc", "logloss", "auc"], Logistic())] == ["logloss", "auc"]
    assert [one.name for one in metrics_of(["auc", "auc"], Logistic())] == ["auc"]
    assert [one.name for one in metrics_of((), Logistic())] == [default_metric(Logistic())]
    section = ModelSection(eval_metric=("auc", "logloss", "auc"), validation_fraction=0.2)
    assert [one.name for one in section.metrics()] == ["logloss", "auc"]


@pytest.mark.parametrize("engine", ["native", "xgboost"])
def test_a_round_has_one_score_of_a_metric_that_is_named_twice(engine: str) -> None:
    rows = np.random.default_rng(0).uniform(0, 10, (100, 2))
    labels = (rows[:, 0] > 5).astype(int)
    model = OpBoostClassifier(engine=engine, eval_metric=["auc", "logloss", "auc"], n_estimators=3)  # type: ignore[arg-type]
    scores = model.fit(rows, labels, eval_set=[(rows, labels)]).evals_result_
    assert {name: len(of_rounds) for name, of_rounds in scores.items()} == {"logloss": 3, "auc": 3}
