"""The measurements of OpBoost (section 6 of the paper): quality kept by every mechanism, as JSON lines and figures.

B's columns lie on the domain [0, 10]; 80 trees of depth 3, learning rate 0.1. For each mechanism, law and budget:
quality on desensitized test rows and on exact (routed) ones, both as a ratio to the model on the raw columns, the
weighted Kendall correlation of the released columns with the exact ones, its exact expectation on uniform data, and the
tight loss between neighbours and over the whole domain. Piecewise is plain local differential privacy, for comparison.

Adult: UCI's division; B holds age, fnlwgt, education_num, capital_gain and hours_per_week. Power Plant: four fifths of
the rows; B holds all columns.

    python scripts/reproduce/vertical.py [--data adult,power_plant] [--laws exponential,clamped] [--seeds 3]
        [--figures scripts/figures]
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from opboost import AdjMap, ColumnSchema, GlobalMap, IntegerDomain, LocalMap, OpBoostClassifier, OpBoostRegressor, rng
from opboost.metrics import auc, r2
from opboost.order_metrics import expected_weighted_kendall, weighted_kendall
from opboost.preprocess import encode
from opboost.privacy.baselines import Piecewise
from opboost.privacy.laws import Law
from parties.reports.figures import Axis, Series, lines, standalone

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
DOMAIN = IntegerDomain(0, 10)
EPSILONS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12)
THETAS = (2, 4)
ALPHAS = (0.4, 0.6, 0.8, 1.0, 2.0, 5.0, 10.0)
DRAWN_ALPHAS = (0.4, 2.0, 10.0)
TREES: dict[str, Any] = {"n_estimators": 80, "max_depth": 3, "learning_rate": 0.1}

ADULT_BOUNDS = {
    "age": (17, 90),
    "fnlwgt": (10_000, 1_500_000),
    "education_num": (1, 16),
    "capital_gain": (0, 100_000),
    "hours_per_week": (1, 99),
}
POWER_PLANT_BOUNDS = {"AT": (1.81, 37.11), "V": (25.36, 81.56), "AP": (992.89, 1033.30), "RH": (25.56, 100.16)}


class Mechanism(Protocol):
    """What is measured: a map of codes to codes with an exact table."""

    name: Any
    epsilon: float

    def randomise(self, codes: np.ndarray, *, rng: rng.BitSource) -> np.ndarray: ...
    def log_probabilities(self) -> np.ndarray: ...
    def loss(self, t: int) -> float: ...


class Task(NamedTuple):
    """A data set: rows to train and to test on, B's public bounds, and the model whose quality counts."""

    name: str
    train: tuple[pd.DataFrame, np.ndarray]
    test: tuple[pd.DataFrame, np.ndarray]
    bounds: dict[str, tuple[float, float]]

    def quality(self, train: pd.DataFrame, *tests: pd.DataFrame) -> list[float]:
        """AUC, or R^2 where labels are numbers, on several versions of the test rows."""
        labels, truth = self.train[1], self.test[1]
        if self.name == "adult":
            classifier = OpBoostClassifier(**TREES).fit(train, labels)
            return [auc(truth, classifier.predict_proba(test)[:, 1]) for test in tests]
        regressor = OpBoostRegressor(**TREES).fit(train, labels)
        return [r2(truth, regressor.predict(test)) for test in tests]

    def encoded(self, features: pd.DataFrame) -> pd.DataFrame:
        """The features, B's columns as codes of the domain."""
        codes = {
            name: encode(features[name], ColumnSchema(name=name, lower=low, upper=high), domain=DOMAIN).codes
            for name, (low, high) in self.bounds.items()
        }
        return features.assign(**codes)


def main() -> None:
    """Measure everything that was asked for, and draw it."""
    parser = argparse.ArgumentParser(description="Reproduce the measurements of OpBoost.")
    parser.add_argument("--data", type=_names, default=["adult", "power_plant"])
    parser.add_argument("--laws", type=_names, default=["exponential", "clamped"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=lambda text: [float(e) for e in text.split(",")], default=EPSILONS)
    parser.add_argument("--figures", type=Path, help="a folder for drawings")
    options = parser.parse_args()
    tasks = {"adult": adult, "power_plant": power_plant}
    measured = []
    for name, law in itertools.product(options.data, options.laws):
        for line in measure(tasks[name](), mechanisms(Law(law), options.epsilons), options.seeds):
            measured.append({"data": name, "law": law, **line})
            print(json.dumps(measured[-1]), flush=True)
    if options.figures:
        draw(measured, options.figures)


def mechanisms(law: Law, epsilons: Sequence[float]) -> Iterator[Mechanism]:
    """Every cell of the paper's tables."""
    for epsilon in epsilons:
        yield GlobalMap(epsilon=epsilon, domain=DOMAIN, law=law)
        for theta in THETAS:
            yield LocalMap(epsilon=epsilon, domain=DOMAIN, law=law, theta=theta)
            for alpha in ALPHAS:
                yield AdjMap(epsilon=epsilon, domain=DOMAIN, law=law, theta=theta, alpha=alpha)
        yield Piecewise(epsilon=epsilon, domain=DOMAIN)


def measure(task: Task, cells: Iterable[Mechanism], n_seeds: int) -> Iterator[dict[str, Any]]:
    """One line per cell, averaged over seeds."""
    raw = task.quality(task.train[0], task.test[0])[0]
    train, test = task.encoded(task.train[0]), task.encoded(task.test[0])
    mapped = task.quality(train, test)[0]
    yield {"mechanism": "none", "quality": round(raw, 4), "ratio_on_domain": round(mapped / raw, 4)}
    for cell in cells:
        found = [_one(task, cell, train, test, np.random.default_rng(seed)) for seed in range(n_seeds)]
        desensitized, routed, kendall = np.mean(found, axis=0)
        spread = np.std(found, axis=0)
        yield {
            "mechanism": cell.name,
            "epsilon": cell.epsilon,
            "theta": getattr(cell, "theta", None),
            "alpha": getattr(cell, "alpha", None),
            "ratio_desensitized": round(desensitized / raw, 4),
            "sd_desensitized": round(spread[0] / raw, 4),
            "ratio_routed": round(routed / raw, 4),
            "sd_routed": round(spread[1] / raw, 4),
            "weighted_kendall": round(kendall, 4),
            "weighted_kendall_expected": round(expected_weighted_kendall(cell.log_probabilities()), 4),
            "loss_neighbours": _number(cell.loss(1)),
            "loss_domain": _number(cell.loss(DOMAIN.size - 1)),
        }


def _one(
    task: Task, cell: Mechanism, train: pd.DataFrame, test: pd.DataFrame, seeds: np.random.Generator
) -> tuple[float, float, float]:
    """Quality on desensitized and on exact test rows, and the mean weighted Kendall correlation of the release."""
    released = [_randomised(cell, frame, list(task.bounds), int(seeds.integers(2**31))) for frame in (train, test)]
    kendall = np.mean([weighted_kendall(train[name], released[0][name]) for name in task.bounds])
    desensitized, routed = task.quality(released[0], released[1], test)
    return desensitized, routed, float(kendall)


def _randomised(cell: Mechanism, frame: pd.DataFrame, columns: list[str], seed: int) -> pd.DataFrame:
    source = rng.seeded(seed)
    return frame.assign(
        **{name: cell.randomise(frame[name].to_numpy(np.int64), rng=source.fork(name)) for name in columns}
    )


def adult() -> Task:
    """Incomes over 50,000; A's categories as numbers in the order of the alphabet, missing ones as missing."""
    frame = pd.read_csv(SHARED / "adult.csv.gz", na_values="?")
    is_train, labels = frame.pop("split") == "train", frame.pop("income").to_numpy()
    for name in frame.columns:
        if not pd.api.types.is_numeric_dtype(frame[name]):
            codes = frame[name].astype("category").cat.codes.astype(float)
            frame[name] = codes.where(codes >= 0)
    train, test = ((frame[rows], labels[rows]) for rows in (is_train, ~is_train))
    return Task("adult", train, test, ADULT_BOUNDS)


def power_plant() -> Task:
    """Electrical output of a power plant by the weather."""
    frame = pd.read_csv(SHARED / "power_plant.csv.gz")
    order = np.random.default_rng(0).permutation(len(frame))
    parts = np.split(order, [len(order) * 4 // 5])
    train, test = ((frame.iloc[rows][list(POWER_PLANT_BOUNDS)], frame["PE"].to_numpy()[rows]) for rows in parts)
    return Task("power_plant", train, test, POWER_PLANT_BOUNDS)


def draw(measured: list[dict[str, Any]], folder: Path) -> None:
    """Ratio to the model on raw columns against the budget, of the last law: a file per data set and mode."""
    folder.mkdir(parents=True, exist_ok=True)
    cells = [line for line in measured if line.get("theta") in (None, THETAS[0]) and line["law"] == measured[-1]["law"]]
    for data, mode in itertools.product(dict.fromkeys(line["data"] for line in cells), ("desensitized", "routed")):
        curves: dict[str, list[tuple[float, float, float]]] = {}
        for cell in cells:
            alpha = cell.get("alpha")
            if cell["data"] == data and cell["mechanism"] != "none" and alpha in (None, *DRAWN_ALPHAS):
                label = cell["mechanism"] if alpha is None else f"{cell['mechanism']}, alpha {alpha:g}"
                point = cell["epsilon"], cell[f"ratio_{mode}"], cell[f"sd_{mode}"]
                curves.setdefault(label, []).append(point)
        alt = f"{data}: quality on {mode} test rows as a ratio to raw columns against epsilon, {len(curves)} mechanisms"
        drawing = lines(
            [Series(label, *zip(*points, strict=True)) for label, points in curves.items()],
            x=Axis(label="epsilon", is_log=True),
            y=Axis(label=f"ratio to raw columns, {mode}"),
            alt=alt,
        )
        (folder / f"opboost_{data}_{mode}.svg").write_text(standalone(drawing))


def _number(loss: float) -> float | str:
    """JSON knows no infinity: between the cells of a Local-Map nothing is promised."""
    return round(loss, 4) if np.isfinite(loss) else "inf"


def _names(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
