"""The numbers of the horizontal papers, certified: JSON lines of errors by data set, system and budget.

5-fold cross-validation with several seeds, delta = 5e-8 as in the source. Settings are the estimators' defaults,
everywhere: they were chosen by cross-validation inside the first training fold (``--inner``), never on a test fold.
Bounds are round numbers around what the data's documentation says; Adult's rows are those of UCI's training file
without missing cells.

    python scripts/reproduce/horizontal.py [--seeds 3] [--cases abalone,adult,...] [--inner]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from opboost import DPBoostRegressor, InPrivateClassifier, InPrivateRegressor, SGBDTClassifier, SGBDTRegressor
from opboost.horizontal.noise.leaf_noise import leaf_noise
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.stream import Arrival, EarlierTraining
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.metrics import auc, error_rate, rmse
from opboost.rng import seeded
from opboost.trees.holder import SummedHolders
from opboost.trees.tree import Ensemble, Tree
from parties.config.sgbdt_section import SGBDTSection

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
DELTA = 5e-8

ABALONE_BOUNDS = {
    "sex": (0, 2),
    "length": (0, 1),
    "diameter": (0, 1),
    "height": (0, 1.2),
    "whole_weight": (0, 3),
    "shucked_weight": (0, 1.5),
    "viscera_weight": (0, 0.8),
    "shell_weight": (0, 1.1),
}
RINGS = (1, 29)
ADULT_BOUNDS = {
    "age": (17, 90),
    "fnlwgt": (0, 1.5e6),
    "education_num": (1, 16),
    "capital_gain": (0, 1e5),
    "capital_loss": (0, 5000),
    "hours_per_week": (1, 99),
    "workclass": (0, 6),
    "education": (0, 15),
    "marital_status": (0, 6),
    "occupation": (0, 13),
    "relationship": (0, 5),
    "race": (0, 4),
    "sex": (0, 1),
    "native_country": (0, 40),
}


class Table(NamedTuple):
    """A data set: features, labels, what the estimators are told of it."""

    X: pd.DataFrame
    y: np.ndarray
    public: dict[str, Any]


def abalone() -> Table:
    """Ages of shells; infants, then females and males."""
    frame = pd.read_csv(DATA / "abalone.csv.gz")
    frame["sex"] = frame["sex"].map({"I": 0.0, "F": 1.0, "M": 2.0})
    labels = frame.pop("rings").to_numpy(float)
    return Table(frame, labels, {"bounds": ABALONE_BOUNDS, "label_bounds": RINGS})


def adult() -> Table:
    """Incomes over 50,000; categories as their place in the alphabet, which the documentation lists."""
    frame = pd.read_csv(DATA / "adult.csv.gz", na_values="?")
    frame = frame[frame.pop("split") == "train"].dropna()
    for name in frame.columns:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            frame[name] = frame[name].astype("category").cat.codes.astype(float)
    labels = frame.pop("income").to_numpy()
    return Table(frame, labels, {"bounds": ADULT_BOUNDS})


def main() -> None:
    """Run the cases that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--inner", action="store_true", help="folds inside the first training fold")
    arguments = parser.parse_args()
    for name in arguments.cases:
        for line in CASES[name](arguments.seeds, arguments.inner):
            print(json.dumps({"case": name, **line}), flush=True)


def sgbdt_abalone(seeds: int, inner: bool) -> Iterator[dict[str, Any]]:
    """RMSE by budget; the best published ones are tuned per budget and partly charged too little."""
    targets = {0.05: 2.85, 0.1: 2.72, 0.2: 2.62, 0.3: 2.57, 0.5: 2.54}
    published = {0.05: 2.920, 0.1: 2.754, 0.2: 2.664, 0.3: 2.620, 0.5: 2.582}
    for epsilon in (*targets, math.inf):
        line = validated(SGBDTRegressor, abalone(), seeds, inner, epsilon=epsilon, delta=DELTA)
        yield {**line, "target": targets.get(epsilon), "published": published.get(epsilon)}


def sgbdt_adult(seeds: int, inner: bool) -> Iterator[dict[str, Any]]:
    """Error and AUC by budget."""
    targets = {
        0.07: {"error": 18.2},
        0.1: {"auc": 0.88},
        0.15: {"error": 17.0},
        0.5: {"auc": 0.9},
        0.54: {"error": 15.9},
        math.inf: {},
    }
    for epsilon, target in targets.items():
        yield {**validated(SGBDTClassifier, adult(), seeds, inner, epsilon=epsilon, delta=DELTA), "target": target}


def dpboost(seeds: int, inner: bool) -> Iterator[dict[str, Any]]:
    """DPBoost on Abalone; the authors' code has 8.95 at 1, 3.35 at 4, 2.72 at 10."""
    for epsilon in (1.0, 2.0, 4.0, 6.0, 8.0, 10.0):
        yield validated(DPBoostRegressor, abalone(), seeds, inner, epsilon=epsilon)


def inprivate(seeds: int, inner: bool) -> Iterator[dict[str, Any]]:
    """InPrivate Digging with five owners."""
    for epsilon in (1.0, 4.0):
        yield validated(InPrivateRegressor, abalone(), seeds, inner, epsilon=epsilon)
        yield validated(InPrivateClassifier, adult(), seeds, inner, epsilon=epsilon)


def streams(seeds: int, inner: bool) -> Iterator[dict[str, Any]]:
    """Records of one kind first, the others later, with and without the filter; published without / with it."""
    published = {
        0.05: (2.967, 2.900),
        0.1: (2.796, 2.745),
        0.2: (2.735, 2.652),
        0.3: (2.713, 2.616),
        0.5: (2.711, 2.572),
    }
    table = abalone()
    is_late = table.y > RINGS[0] + (1 - 0.36) * (RINGS[1] - RINGS[0]) / 2  # the scaled mean, as in the source
    for epsilon, figures in published.items():
        for has_filter in (False, True):
            line = validated(
                SGBDTRegressor,
                table,
                seeds,
                inner,
                is_late=is_late,
                epsilon=epsilon,
                delta=DELTA,
                use_filter=has_filter,
            )
            yield {**line, "filter": has_filter, "published": figures[has_filter]}


def owners(seeds: int, inner: bool) -> Iterator[dict[str, Any]]:
    """The same streams among three owners, as runs that go on."""
    table = abalone()
    is_late = table.y > RINGS[0] + (1 - 0.36) * (RINGS[1] - RINGS[0]) / 2
    for epsilon in (0.1, 0.5):
        for has_filter in (False, True):
            for late in (is_late, None) if has_filter else (is_late,):
                settings = {"epsilon": epsilon, "delta": DELTA, "use_filter": has_filter}
                line = validated(AmongOwners, table, seeds, inner, is_late=late, **settings)
                yield {**line, "at once": late is None}


class AmongOwners:
    """S-GBDT among three owners with the run files' defaults, trained like an estimator."""

    def __init__(self, *, bounds: dict[str, Any], label_bounds: tuple[float, float], random_state: int, **budget: Any):
        section = SGBDTSection(use_filter=budget.pop("use_filter")).completed(is_classification=False)
        lower, upper = label_bounds
        grid = PublicGrid(list(bounds.values()), section.max_cells)
        task = PublicTask(tuple(bounds), grid, (lower + upper) / 2, (upper - lower) / 2, budget["epsilon"], True, False)
        clipping = leaf_clipping(section.max_grad, section.denominator_noise, is_classification=False)
        n_trees = section.n_estimators
        noise = leaf_noise(clipping, n_trees=n_trees, initial_share=0.0, has_filter=section.has_filter, **budget)
        settings = section.settings(len(bounds), is_printed=False)
        self._recipe = SGBDTAmongOwners(
            task=task, settings=settings, noise=noise, n_trees=n_trees, delta=budget["delta"]
        )
        self._bits = seeded(random_state)
        self._parts = [(np.empty((0, len(bounds))), np.empty(0))] * 3
        self._quotas: list[tuple[Arrival, ...]] = [()] * 3
        self._trees: tuple[Tree, ...] = ()
        self._model: Ensemble | None = None

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> None:
        """Train on all records at once."""
        self.partial_fit(X, y)

    def partial_fit(self, X: pd.DataFrame, y: np.ndarray) -> None:
        """Train, or go on with records that have arrived."""
        heard: list[Tree] = []
        bits, recipe = self._bits.fork(str(len(self._trees))), self._recipe

        class Owners(SummedHolders):
            def finish_tree(self, tree: Tree) -> None:
                heard.append(recipe.task.grid.in_values(tree))
                super().finish_tree(tree)

        holders, going_on = [], recipe
        for owner, (rows, labels) in enumerate(self._parts):
            more = slice(owner, None, 3)
            part = np.concatenate([rows, X.to_numpy(float)[more]]), np.concatenate([labels, y[more]])
            if self._model is not None:
                trees, arrivals = self._trees, self._quotas[owner]
                going_on = recipe.going_on(
                    EarlierTraining(run="before", model=self._model, digest="", trees=trees, arrivals=arrivals)
                )
            holders.append(going_on.rows(*part, rng=bits.fork(f"owner {owner}")))
            self._parts[owner] = part
            self._quotas[owner] += (Arrival(len(part[1]), len(self._trees)),)
        self._model = going_on.train(Owners(holders), shape_bits=bits.fork("shape"), rng=bits.fork("noise"))
        self._trees = going_on.kept_trees(heard).trees

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """Predict labels."""
        assert self._model is not None
        return self._model.predict(X.to_numpy(float))


def printed(seeds: int, inner: bool) -> Iterator[dict[str, Any]]:
    """S-GBDT's own account, and what its noise is really worth."""
    table = abalone()
    for n_trees in (50, 150, 300):
        for epsilon in (0.15, 0.54):
            model = SGBDTRegressor(
                **table.public,
                epsilon=epsilon,
                delta=DELTA,
                mode="paper",
                n_estimators=n_trees,
                subsample=0.1,
                initial_share=0.0,
                max_grad=1.0,
                random_state=0,
            ).fit(table.X, table.y)
            promise = model.guarantee_
            yield {"trees": n_trees, "claimed": promise.claimed_epsilon, "epsilon": round(promise.epsilon, 3)}


def speed(seeds: int, inner: bool) -> Iterator[dict[str, Any]]:
    """Seconds of a fit after compilation, against the plain core on as many trees of the same depth."""
    from opboost import OpBoostClassifier, OpBoostRegressor

    for name, table, private, plain, size in (
        ("abalone", abalone(), SGBDTRegressor, OpBoostRegressor, {"n_estimators": 150}),
        ("adult", adult(), SGBDTClassifier, OpBoostClassifier, {"n_estimators": 200, "max_depth": 6}),
    ):
        ours = private(**table.public, epsilon=0.5, delta=DELTA, **size)
        depth = {"max_depth": ours.max_depth, **size}
        seconds = [best_of(3, lambda m=m, t=table: m.fit(t.X, t.y)) for m in (ours, plain(**depth))]
        yield {"data": name, "seconds": round(seconds[0], 3), "ratio_vs_plain_core": round(seconds[0] / seconds[1], 2)}


def best_of(n: int, run: Callable[[], object]) -> float:
    """The least time of several runs, the first one left out."""
    times = []
    for _ in range(n + 1):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def validated(
    kind: type, table: Table, seeds: int, inner: bool, *, is_late: np.ndarray | None = None, **settings: Any
) -> dict[str, Any]:
    """Mean scores over folds and seeds, and their standard errors over fits."""
    scores: dict[str, list[float]] = {}
    for fold, (train, test) in enumerate(folds(len(table.y), inner)):
        for seed in range(seeds):
            model = kind(**table.public, **settings, random_state=1000 * fold + seed)
            fit(model, table, train, is_late)
            for name, score in score_of(model, table.X.iloc[test], table.y[test]).items():
                scores.setdefault(name, []).append(score)
    means = {name: round(float(np.mean(values)), 4) for name, values in scores.items()}
    errors = {f"{name}_se": round(float(np.std(v) / math.sqrt(len(v))), 4) for name, v in scores.items()}
    shown = {key: "inf" if value == math.inf else value for key, value in settings.items()}
    return {"system": kind.__name__, **shown, **means, **errors}


def fit(model: Any, table: Table, train: np.ndarray, is_late: np.ndarray | None) -> None:
    """Train on all rows at once, or on the late ones after the others."""
    if is_late is None:
        model.fit(table.X.iloc[train], table.y[train])
        return
    for rows in (train[~is_late[train]], train[is_late[train]]):
        model.partial_fit(table.X.iloc[rows], table.y[rows])


def score_of(model: Any, X: pd.DataFrame, y: np.ndarray) -> dict[str, float]:
    """RMSE, or error in per cent at probability 1/2 and AUC."""
    if not hasattr(model, "predict_proba"):
        return {"rmse": rmse(y, model.predict(X))}
    shares = model.predict_proba(X)[:, 1]
    return {"error": 100 * error_rate(y, shares > 0.5), "auc": auc(y, shares)}


def folds(n_rows: int, inner: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows to train on and to test on."""
    order = np.random.default_rng(0).permutation(n_rows)
    if inner:
        order = np.random.default_rng(123).permutation(np.setdiff1d(order, order[::5]))
    for k in range(5):
        yield np.setdiff1d(order, order[k::5]), order[k::5]


CASES = {
    "abalone": sgbdt_abalone,
    "adult": sgbdt_adult,
    "dpboost": dpboost,
    "inprivate": inprivate,
    "streams": streams,
    "owners": owners,
    "paper": printed,
    "speed": speed,
}

if __name__ == "__main__":
    main()
