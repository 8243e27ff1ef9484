"""Training through the noise: what is chosen, and that nothing changes where there is no noise."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import opboost.fitting.noise_correction
import opboost.fitting.outputs
from opboost import rng as bits
from opboost.columns import OwnColumn, RankColumn
from opboost.denoise.channel import ColumnRelease
from opboost.denoise.imputation import Evidence
from opboost.denoise.sources import RankSource, sources_of
from opboost.errors import DataError
from opboost.fitting.choice import choose
from opboost.fitting.imputing import impute
from opboost.fitting.noise_correction import N_FITS, _draw_by_common_fit, _draw_by_own_fit, _draws
from opboost.fitting.noised_table import Blend, NoiseChoice, NoisedRows
from opboost.fitting.recipe import OWN_DEPTHS, Recipe
from opboost.fitting.trials import MOST_DRAWS, N_PARTS, CodeDraws
from opboost.metrics import metric_by_name, r2
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.order_preserving import GlobalMap
from opboost.split_tests import bind, feature_matrix, list_tests
from opboost.trees.alternating import FollowedVersions
from opboost.trees.binning import bin_values
from opboost.trees.boosting import BoostingParameters, boost_table
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.kernels.threads import n_threads
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError
from opboost.trees.validation import KnownRows, ValidationPlan
from opboost.vertical import TrainedTrees, train
from tests.support.ranked_columns import dense_ranks

CALM = BoostingParameters(n_estimators=40, max_depth=3, learning_rate=0.2)
POINTS = 50

with_few_fits = pytest.mark.usefixtures("few_fits")


class Run:
    """Two passive columns that say much of the label, one own column that says little."""

    def __init__(self, epsilon: float, *, n_rows: int = 3000, is_useless: bool = False) -> None:
        rng = np.random.default_rng(5)
        self.own = rng.normal(size=2 * n_rows)
        exact = rng.integers(0, POINTS, size=(2, 2 * n_rows))
        effect = 0.0 if is_useless else np.abs(exact[0] - 25) / 8 + exact[1] / 12
        self.labels = effect + 0.5 * self.own + 0.3 * rng.normal(size=2 * n_rows)
        mechanism = GlobalMap(epsilon=epsilon, domain=IntegerDomain(1, POINTS))
        self.n_rows, self.exact = n_rows, exact
        self.codes, self.columns = [], [OwnColumn("own", self.own[:n_rows])]
        for j in range(2):
            released = mechanism.randomise(exact[j, :n_rows] + 1, rng=bits.seeded(j))
            ranks, codes = dense_ranks(released)
            self.codes.append(codes - 1)
            release = ColumnRelease(mechanism, None, codes - 1)
            self.columns.append(RankColumn("b", j, f"b{j}", ranks, len(codes), release))

    def train(self, labels: Any = None, **settings: Any) -> TrainedTrees:
        labels = self.labels if labels is None else labels
        chosen: dict[str, Any] = {"loss": SquaredError(), "parameters": CALM, "seed": 1} | settings
        return train(self.columns, labels[: self.n_rows], np.ones(self.n_rows), **chosen)

    def routed(self, trained: TrainedTrees) -> np.ndarray:
        """Predictions for unseen records, whose owner answers with exact codes."""
        tests, unseen = list_tests(trained), slice(self.n_rows, None)
        ensemble, wanted = bind(trained, tests), tests["b"]
        answers = np.empty((self.n_rows, len(wanted.ranks)), np.bool_)
        for t, (c, rank) in enumerate(zip(wanted.columns, wanted.ranks, strict=True)):
            codes = self.codes[c]
            answers[:, t] = self.exact[c, unseen] <= (codes[rank] + codes[min(rank + 1, len(codes) - 1)]) / 2
        answered = {"b": answers} if len(wanted.ranks) else {}
        return ensemble.predict(feature_matrix(ensemble, {"own": self.own[unseen]}, answered, self.n_rows))

    def score(self, trained: TrainedTrees) -> float:
        return r2(self.labels[self.n_rows :], self.routed(trained))


def same(one: TrainedTrees, other: TrainedTrees) -> bool:
    return len(one.trees) == len(other.trees) and all(
        np.array_equal(a.columns, b.columns)
        and np.array_equal(a.thresholds, b.thresholds)
        and np.array_equal(a.values, b.values)
        for a, b in zip(one.trees, other.trees, strict=True)
    )


def test_without_noise_the_corrected_model_is_the_plain_one() -> None:
    run = Run(math.inf)
    corrected = run.train()
    assert corrected.choice is None
    assert same(corrected, run.train(correct_noise=False))
    assert not same(corrected, run.train(parameters=replace(CALM, max_bin=20)))


def test_columns_whose_release_is_not_known_are_taken_as_they_are() -> None:
    run = Run(0.1)
    plain = run.train(correct_noise=False)
    run.columns[1:] = [replace(column, release=None) for column in run.columns[1:]]
    assert same(run.train(), plain)


def test_learning_through_the_noise_is_better_than_taking_it_for_exact() -> None:
    """A whole-range loss of 4.9: on unseen records .70 of the variance in place of .55 (measured)."""
    run = Run(0.1)
    corrected, plain = run.train(), run.train(correct_noise=False)
    assert corrected.choice is NoiseChoice.CORRECTED
    assert run.score(corrected) > run.score(plain) + 0.05


def test_trees_see_what_the_mixture_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """An own column turns the effect of a passive one round, so the mixture sees none: .63 against .52 (measured)."""
    run = Run(0.06, n_rows=1200)
    run.labels = np.sign(run.own) * (run.exact[0] - 25) / 8 + 0.3 * np.random.default_rng(1).normal(size=2400)
    monkeypatch.setattr(opboost.fitting.noise_correction, "choose", lambda *_, **__: Blend(NoiseChoice.CORRECTED))
    refined = run.score(run.train())
    monkeypatch.setattr(opboost.fitting.noise_correction, "can_refine", lambda *_: False)
    assert refined > run.score(run.train()) + 0.05


def test_a_small_table_takes_one_thread_to_follow_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that wait for each other at each of 30,000 trees took 25 times as long on a busy machine."""
    seen, followed, before = [], FollowedVersions.up_to_date, n_threads()
    monkeypatch.setattr(
        FollowedVersions, "up_to_date", lambda self, *turn: (seen.append(n_threads()), followed(self, *turn))[1]
    )
    Run(0.2, n_rows=500).train(parameters=replace(CALM, n_estimators=2))
    assert set(seen) == {1}
    assert n_threads() == before


def test_the_same_seed_grows_the_same_trees() -> None:
    run = Run(0.1, n_rows=800)
    assert same(run.train(), run.train())
    assert not same(run.train(), run.train(seed=2))


def test_columns_that_say_nothing_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(0.02, is_useless=True)
    chosen = run.train()
    monkeypatch.setattr(opboost.fitting.noise_correction, "choose", lambda *_, **__: Blend(NoiseChoice.ALONE))
    alone = run.train()
    assert not len(list_tests(alone)["b"].ranks)
    assert run.score(chosen) > run.score(alone) - 0.02


@with_few_fits
@pytest.mark.parametrize("choice", NoiseChoice)
@pytest.mark.parametrize("loss", [SquaredError(), Logistic(), Softmax(3)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("engine", ["native", "xgboost"])
def test_every_choice_trains_with_every_loss_and_engine(
    choice: NoiseChoice, loss: Loss, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "xgboost":
        pytest.importorskip("xgboost")
    monkeypatch.setattr(opboost.fitting.noise_correction, "choose", lambda *_, **__: Blend(choice))
    run = Run(0.2, n_rows=600)
    cuts = np.quantile(run.labels, [1 / 3, 2 / 3] if loss.n_outputs == 3 else [0.5])
    labels = run.labels if isinstance(loss, SquaredError) else np.digitize(run.labels, cuts).astype(float)
    held_out = np.arange(600) % 5 == 0
    plan = ValidationPlan(held_out, (metric_by_name("rmse" if loss.n_outputs == 1 else "mlogloss", loss),))
    small = BoostingParameters(n_estimators=6, max_depth=3)
    trained = run.train(labels, loss=loss, engine=engine, validation=plan, parameters=small)
    assert trained.choice is choice
    assert len(trained.trees) == 6 * loss.n_outputs
    assert bool(len(list_tests(trained)["b"].ranks)) == (choice is not NoiseChoice.ALONE)
    (scores,) = trained.history.scores.values()
    assert len(scores) == 6
    assert np.isfinite(run.routed(trained)).all()


@with_few_fits
@pytest.mark.parametrize("choice", [NoiseChoice.CORRECTED_AND_PLAIN, NoiseChoice.PLAIN])
def test_trees_of_the_own_columns_have_the_share_of_the_scores_that_others_leave(
    choice: NoiseChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores are linear in the share, which may be above 1."""
    run, scores, small = Run(0.1, n_rows=500), {}, replace(CALM, n_estimators=12)
    for share in (0.2, 1.0, 1.5):
        found = Blend(choice, share)
        monkeypatch.setattr(opboost.fitting.noise_correction, "choose", lambda *_, found=found, **__: found)
        scores[share] = run.routed(run.train(parameters=small))
    per_share = (scores[1.0] - scores[0.2]) / 0.8
    assert per_share.std() > 0.1
    assert scores[1.5] == pytest.approx(scores[1.0] + 0.5 * per_share, abs=1e-9)


@with_few_fits
@pytest.mark.parametrize("loss", [SquaredError(), Logistic(), Softmax(3)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("choice", [NoiseChoice.CORRECTED, NoiseChoice.PLAIN])
def test_trees_that_go_on_are_added_to_those_of_the_own_columns(
    loss: Loss, choice: NoiseChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a share of their own, what is left is the model of the own columns alone, at its height."""
    run, scores, small = Run(0.1, n_rows=500), {}, replace(CALM, n_estimators=12)
    cuts = np.quantile(run.labels, [1 / 3, 2 / 3] if loss.n_outputs == 3 else [0.5])
    labels = run.labels if isinstance(loss, SquaredError) else np.digitize(run.labels, cuts).astype(float)
    blends = {share: Blend(choice, share, continues_own=True) for share in (0.0, 1.0, 1.5)}
    for share, blend in {**blends, "alone": Blend(NoiseChoice.ALONE)}.items():
        monkeypatch.setattr(opboost.fitting.noise_correction, "choose", lambda *_, blend=blend, **__: blend)
        trained = run.train(labels, loss=loss, parameters=small)
        scores[share] = run.routed(replace(trained, loss=SquaredError()) if loss.n_outputs == 1 else trained)
    if loss.n_outputs == 1:
        assert scores[1.5] == pytest.approx(1.5 * scores[1.0] - 0.5 * scores[0.0], abs=1e-9)
    assert scores[0.0] == pytest.approx(scores["alone"], abs=1e-9)
    assert np.std(scores[1.0] - scores[0.0]) > 0.05


def test_trees_go_on_where_the_own_column_says_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """On unseen records .904 of the variance in place of .886 (measured); the twin may not go on."""
    run = Run(0.06)
    run.labels = run.labels + 2 * np.sin(3 * run.own)
    usual = run.score(run.train())
    alike = partial(choose, may_continue_own=False)
    monkeypatch.setattr(
        opboost.fitting.noise_correction, "choose", lambda *rows, may_continue_own, rng: alike(*rows, rng=rng)
    )
    assert usual > run.score(run.train()) + 0.01


def test_rows_of_no_weight_are_left_out_of_the_fit() -> None:
    run = Run(0.2, n_rows=900)
    weights = (np.arange(900) < 1).astype(float)
    small = BoostingParameters(n_estimators=2, max_depth=2)
    for loss in (SquaredError(), Softmax(2)):
        labels = run.labels[:900] if loss == SquaredError() else np.zeros(900)
        trained = train(run.columns, labels, weights, loss=loss, parameters=small, seed=1)
        assert trained.choice is None


def test_labels_of_more_classes_than_a_byte_has_are_told_apart() -> None:
    labels = np.array([0.0, 1.0, 256.0, 257.0, 299.0])
    states = Evidence.of(labels, np.empty((5, 0)), n_classes=300).label_states
    assert states[:, 0].tolist() == labels.tolist()
    assert Evidence.of(labels[:2], np.empty((2, 0)), n_classes=256).label_states.dtype == np.uint8


def test_a_release_that_does_not_fit_its_ranks_is_refused() -> None:
    run = Run(0.1, n_rows=500)
    column = run.columns[1]
    assert isinstance(column, RankColumn)
    assert column.release is not None
    run.columns[1] = replace(column, release=replace(column.release, positions=column.release.positions[1:]))
    with pytest.raises(DataError, match="Nothing was trained"):
        run.train()


def test_leaves_are_fitted_anew_on_the_same_draws_of_noised_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(0.1)
    monkeypatch.setattr(opboost.fitting.noise_correction, "choose", lambda *_, **__: Blend(NoiseChoice.CORRECTED))
    plan = ValidationPlan(np.arange(run.n_rows) % 5 == 0, (metric_by_name("rmse", SquaredError()),))
    for validation in (None, plan):
        grown = run.train(validation=validation)
        fitted = run.train(validation=validation, leaf_labels=run.labels[: run.n_rows])
        assert grown.choice is NoiseChoice.CORRECTED
        assert same(grown, fitted)


def known_rows(run: Run, *, is_told: bool) -> KnownRows:
    """The unseen records by the cells of a grid; `is_told` says whether the owner's answers are about them."""
    unseen, columns = slice(run.n_rows, None), [run.own[run.n_rows :]]
    for j, codes in enumerate(run.codes):
        cuts = np.arange(2, len(codes) - 1, 3)
        run.columns[1 + j] = replace(run.columns[1 + j], cuts=cuts)
        exact = run.exact[j, unseen] if is_told else np.random.default_rng(j).permutation(run.exact[j, unseen])
        ranks = np.searchsorted(codes, exact).clip(0, len(codes) - 1)
        columns.append(np.append(cuts, len(codes) - 1)[np.searchsorted(cuts, ranks)].astype(float))
    return KnownRows(tuple(columns), run.labels[unseen])


@pytest.mark.parametrize("is_told", [True, False])
def test_known_rows_choose_between_the_models(is_told: bool) -> None:
    """Columns that say much in training and nothing about new records are dropped; the twin, which compares on a share
    of the training rows, takes them."""
    run, brief = Run(0.1, n_rows=800), replace(CALM, n_estimators=10)
    known = known_rows(run, is_told=is_told)
    usual = NoiseChoice.CORRECTED
    assert run.train(known=known, parameters=brief).choice is (usual if is_told else NoiseChoice.ALONE)
    few = KnownRows(tuple(column[:100] for column in known.columns), known.labels[:100])
    assert is_told or run.train(known=few, parameters=brief).choice is not NoiseChoice.ALONE


@with_few_fits
@pytest.mark.parametrize("loss", [SquaredError(), Softmax(3)], ids=lambda loss: loss.name)
@pytest.mark.parametrize(
    ("engine", "share", "continues_own"),
    [("native", 1.0, True), ("native", 1.5, True), ("native", 0.4, False), ("xgboost", 1.0, True)],
)
def test_rows_that_stop_the_trees_are_scored_with_those_of_the_own_columns_beside_them(
    loss: Loss, engine: Any, share: float, continues_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best score is the model's on these rows: without the trees on the own column, errors seem twice as large."""
    if engine == "xgboost":
        pytest.importorskip("xgboost")
    run = Run(0.06, n_rows=600)
    run.labels = run.labels + 2 * np.sin(3 * run.own)
    metric = metric_by_name("rmse" if loss.n_outputs == 1 else "mlogloss", loss)
    if loss.n_outputs == 3:
        run.labels = np.digitize(run.labels, np.quantile(run.labels, [1 / 3, 2 / 3])).astype(float)
    known = replace(known_rows(run, is_told=True), metrics=(metric,))
    blend = Blend(NoiseChoice.CORRECTED, share, continues_own)
    monkeypatch.setattr(opboost.fitting.noise_correction, "choose", lambda *_, **__: blend)
    stopped = replace(CALM, early_stopping_rounds=5)
    trained = run.train(known=known, loss=loss, engine=engine, parameters=stopped)
    ensemble, cells = bind(trained, list_tests(trained)), {}
    for column, ranks in zip(run.columns[1:], known.columns[1:], strict=True):
        assert isinstance(column, RankColumn)
        cells[column.name] = np.searchsorted(column.cuts, ranks)
    answers = {"b": np.column_stack([cells[one.name] for one in ensemble.features if one.owner == "b"])}
    predictions = ensemble.predict(feature_matrix(ensemble, {"own": known.columns[0]}, answers, 600))
    (scores,) = trained.history.scores.values()
    assert metric.score(known.labels, predictions) == pytest.approx(scores[trained.history.best_round - 1], rel=1e-6)


def described(run: Run, labels: np.ndarray | None = None) -> tuple[NoisedRows, Recipe]:
    """The rows of a run whose noised columns are to be filled in, and how its trees are grown."""
    own = bin_values(run.own[: run.n_rows], max_bin=64)
    sources = {c + 1: RankSource(one.ranks, one.n_ranks, one.release) for c, one in enumerate(run.columns[1:])}
    limits = ColumnConstraints().on(list("abc"), are_categorical=[False] * 3, max_delta_step=0.0)
    labels = run.labels[: run.n_rows] if labels is None else labels
    noised = NoisedRows.of([own, None, None], sources, labels, np.ones(run.n_rows), n_columns=3)
    return noised, Recipe(CALM, SquaredError(), limits, 0)


@pytest.mark.parametrize(("waves", "depth"), [(8.0, 8), (0.0, 2)])
def test_held_out_rows_say_how_deep_trees_on_the_own_columns_are(waves: float, depth: int) -> None:
    """Many waves of an own column need deep trees; where it says little, these fit chance."""
    run = Run(0.1, n_rows=600)
    noised, recipe = described(run, run.labels[:600] + 3 * np.sin(waves * run.own[:600]))
    rng = np.random.default_rng(1)
    draw_codes = partial(_draw_by_own_fit, noised, recipe, max_bin=64, rng=rng)
    open_recipe = replace(recipe.brief(10), own_depths=(2, 8))
    assert choose(noised, open_recipe, None, draw_codes, rng=rng).own_depth == depth
    assert choose(noised, recipe.brief(10), None, draw_codes, rng=rng).own_depth is None


@pytest.mark.parametrize(("is_open", "is_large"), [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize("choice", [NoiseChoice.CORRECTED, NoiseChoice.ALONE])
def test_trees_on_the_own_columns_are_deeper_only_where_nobody_chose_a_depth_and_rows_are_few(
    choice: NoiseChoice, is_open: bool, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = Run(0.1, n_rows=500), []
    monkeypatch.setattr(opboost.fitting.noise_correction, "MANY_ROWS", 499 if is_large else 500)
    is_deep = is_open and not is_large

    def chosen(*rows: Any, may_continue_own: bool, rng: Any) -> Blend:
        asked.append(rows[1].own_depths)
        return Blend(choice, 0.6 if choice is NoiseChoice.CORRECTED else 1.0, own_depth=6 if asked[-1] else None)

    monkeypatch.setattr(opboost.fitting.noise_correction, "choose", chosen)
    trained = run.train(left_open=frozenset({"max_depth"} if is_open else ()))
    assert asked == [OWN_DEPTHS if is_deep else ()]
    on_own = [tree for tree in trained.trees if (tree.columns <= 0).all()]
    assert len(on_own) >= 40
    assert (max(tree.depth for tree in on_own) > 4) == is_deep
    assert all(tree.depth <= 5 for tree in trained.trees if (tree.columns > 0).any())


def test_draws_of_each_fit_come_by_turns() -> None:
    """So that each of as many ensembles looks at the draws of one fit."""
    run, rows = Run(0.1, n_rows=400), np.arange(400)
    noised, recipe = described(run)
    rng = np.random.default_rng(1)
    sources = sources_of(noised.columns)
    fits = [impute(noised, sources, rows, recipe, rng=rng) for _ in range(2)]

    def draws(fits: Any) -> np.ndarray:
        is_trained = rows < 390
        return _draws(noised, is_trained, fits, recipe, max_bin=64, rng=np.random.default_rng(2))

    alone, both = draws(fits[:1]), draws(fits)
    assert (len(alone), len(both)) == (MOST_DRAWS, 2 * MOST_DRAWS)
    np.testing.assert_array_equal(both[::2], alone)
    assert (both[1::2] != alone).any(axis=(0, 1)).mean() > 0.9


@pytest.mark.parametrize(
    ("changed", "n_ensembles"),
    [({"learning_rate": 0.04}, N_FITS), ({"learning_rate": 0.05}, 1), ({"learning_rate": 0.04, "booster": "dart"}, 1)],
)
def test_each_fit_has_an_ensemble_where_rounds_are_many(
    monkeypatch: pytest.MonkeyPatch, changed: Any, n_ensembles: int
) -> None:
    run, seen = Run(0.1, n_rows=500), []

    def noted(*rows: Any, alternates: Any, **settings: Any) -> Any:
        seen.append(alternates.n_ensembles)
        return boost_table(*rows, alternates=alternates, **settings)

    monkeypatch.setattr(opboost.fitting.outputs, "boost_table", noted)
    assert run.train(parameters=replace(CALM, **changed)).choice is NoiseChoice.CORRECTED
    assert seen == [n_ensembles]


def test_what_is_drawn_is_fitted_several_times_where_rows_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    run, asked = Run(0.1, n_rows=500), []

    def counted(*rows: Any, rng: Any) -> Any:
        asked.append(1)
        return impute(*rows, rng=rng)

    monkeypatch.setattr(opboost.fitting.noise_correction, "impute", counted)
    run.train()
    # Then one for each part that candidates are compared on.
    assert len(asked) == N_FITS + N_PARTS
    monkeypatch.setattr(opboost.fitting.noise_correction, "MANY_ROWS", 499)
    run.train()
    assert len(asked) == N_FITS + N_PARTS + 1


def test_draws_to_compare_on_know_no_label_of_the_rows_held_out() -> None:
    """Draws of the run itself do: by the mixture, and by the trees that weigh proposals. They are the broken twin."""
    run, rng = Run(0.1, n_rows=400), np.random.default_rng(0)
    part = rng.permutation(400) % 2
    kept, held = np.flatnonzero(part), np.flatnonzero(1 - part)
    seen, before = [], []
    for shift in (0.0, 3.0):
        noised, recipe = described(run, run.labels[:400] + shift * rng.normal(size=400) * (part == 0))
        of_all = np.random.default_rng(1)
        seen.append(_draw_by_own_fit(noised, recipe, kept, held, max_bin=64, rng=np.random.default_rng(1)))
        fit = impute(noised, sources_of(noised.columns), np.arange(400), recipe, rng=of_all)
        states = fit.draw(10, seed=2)
        before.append(_draw_by_common_fit(fit, states, kept, held, rng=of_all))
    np.testing.assert_array_equal(seen[0].states, seen[1].states)
    np.testing.assert_array_equal(seen[0].blind, seen[1].blind)
    assert (before[0].states != before[1].states).any()


@pytest.mark.parametrize("is_shuffled", [True, False])
def test_released_codes_are_taken_where_draws_say_less_than_these(is_shuffled: bool) -> None:
    """Draws to grow on that belong to other rows teach nothing; the twin has draws of the rows themselves."""
    run = Run(0.25, n_rows=600)
    noised, recipe = described(run)

    def draw_codes(kept: Any, held: Any) -> CodeDraws:
        drawn = _draw_by_own_fit(noised, recipe, kept, held, max_bin=64, rng=np.random.default_rng(1))
        return replace(drawn, states=np.roll(drawn.states, 1, axis=2)) if is_shuffled else drawn

    rng = np.random.default_rng(2)
    blend = choose(noised, recipe.brief(20), None, draw_codes, rng=rng)
    assert (blend.choice is NoiseChoice.PLAIN) == is_shuffled
    assert blend.share > 0.5
