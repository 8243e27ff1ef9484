"""Scores of routed predictions against the privacy budget, with and without learning through the noise.

For each table, mechanism, budget and seed: the passive columns are released on a domain of `--domain` points, and four
models of the same trees are scored on unseen records' exact codes: the active party alone; the released codes taken
for exact ones (plain); learning through the noise (corrected); and the exact codes. AUC for two classes, accuracy for
more, R^2 for numbers. The passive party holds every other numeric column, within the public bounds of `tables.yaml`;
all of Power Plant; five columns of Adult, in UCI's division; the numeric columns of the bundled sample.

Prints a JSON line per cell, then per table and budget the means over seeds, then over all cells: in how many of them
the corrected model beats the plain one at the budgets .02 to .16, which share of the loss from exact to plain codes is
won back, and by how much it is below the best of plain and alone.

    python scripts/reproduce/noise.py [--tables power_plant,adult] [--epsilons .02,.08] [--seeds 3]
        [--mechanisms global,adj,local] [--domain 100] [--rows 20000] [--quick] [--figures scripts/figures]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from opboost import OpBoostClassifier, OpBoostRegressor
from opboost.fitting.recipe import OWN_DEFAULTS
from opboost.metrics import auc, r2
from parties.reports.figures import Axis, Series, lines, standalone

ROOT = Path(__file__).parent.parent.parent
SHARED = ROOT.parent / "shared" / "data"
TABLES = (
    "power_plant",
    "adult",
    "sample",
    "magic",
    "wine_white",
    "shoppers",
    "california_housing",
    "bike_sharing",
    "abalone",
    "spambase",
    "letter",
)
EPSILONS = (0.02, 0.04, 0.08, 0.16, 0.32, 1.28)
MECHANISMS: dict[str, dict[str, Any]] = {"global": {}, "adj": {"theta": 10, "alpha": 2.0}, "local": {"theta": 10}}
ADULT_PASSIVE = ["age", "fnlwgt", "education_num", "capital_gain", "hours_per_week"]
SPAMBASE = {"f54": (1.0, 1000.0), "f55": (1.0, 10_000.0), "f56": (1.0, 20_000.0)}


class Table(NamedTuple):
    """A data set: columns as numbers, labels, the passive columns' bounds, and who is trained on if that is given."""

    features: pd.DataFrame
    labels: np.ndarray
    bounds: dict[str, tuple[float, float]]
    categories: list[str]
    is_trained: np.ndarray | None
    is_number: bool


def read(name: str) -> Table:
    """One of `TABLES`."""
    if name == "sample":
        return _sample()
    described = yaml.safe_load((SHARED / "tables.yaml").read_text())[name]
    frame = pd.read_csv(SHARED / f"{name}.csv.gz")
    labels, is_trained = frame.pop(described["label"]), None
    if "split" in frame:
        is_trained = (frame.pop("split") == "train").to_numpy()
    numeric = described["numeric"]
    if name == "letter":
        numeric = dict.fromkeys(frame.columns, (0.0, 15.0))
    elif name == "spambase":
        numeric = {column: SPAMBASE.get(column, (0.0, 100.0)) for column in frame.columns}
    passive = {"adult": ADULT_PASSIVE, "power_plant": list(numeric)}.get(name, list(numeric)[::2])
    bounds = {column: tuple(map(float, numeric[column])) for column in passive}
    if name == "power_plant":
        bounds = {column: (frame[column].min(), frame[column].max()) for column in passive}
    return _table(frame, labels, bounds, is_trained, is_number=described["task"] in ("regression", "count"))


def _sample() -> Table:
    """The two parties' files; a missing cell of the retailer's is its column's public fill, or the lower bound."""
    own, other = (pd.read_csv(ROOT / "data" / f"{party}.csv.gz") for party in ("bank", "retailer"))
    bank, retailer = (
        yaml.safe_load((ROOT / "data" / f"{party}.schema.yaml").read_text()) for party in ("bank", "retailer")
    )
    numeric = {c: s for c, s in retailer["columns"].items() if s["kind"] == "numeric"}
    frame = own.merge(other[["id", *numeric]], on="id").drop(columns="id")
    labels = frame.pop(bank["label"])
    for column, schema in numeric.items():
        frame[column] = frame[column].fillna(schema.get("fill", schema["lower"]))
    bounds = {column: (float(schema["lower"]), float(schema["upper"])) for column, schema in numeric.items()}
    return _table(frame, labels, bounds, None, is_number=False)


def _table(
    frame: pd.DataFrame, labels: pd.Series, bounds: dict[str, Any], is_trained: np.ndarray | None, *, is_number: bool
) -> Table:
    categories = [column for column in frame if not pd.api.types.is_numeric_dtype(frame[column])]
    frame = frame.copy()
    for column in categories:
        frame[column] = frame[column].astype("category").cat.codes.replace(-1, np.nan)
    for column, (lower, _) in bounds.items():
        frame[column] = frame[column].fillna(lower)
    targets = labels.to_numpy(float) if is_number else labels.astype("category").cat.codes.to_numpy(float)
    return Table(frame.astype(float), targets, bounds, categories, is_trained, is_number)


def cell(
    table: Table,
    mechanism: str,
    epsilon: float,
    seed: int,
    domain: int,
    rows: int,
    settings: dict[str, Any],
    noiseless: dict[str, Any],
) -> dict[str, Any]:
    """Scores of the four models on the same unseen records; `noiseless` keeps those of two, which no budget changes."""
    rng = np.random.default_rng(seed)
    if table.is_trained is None:
        order = rng.permutation(len(table.labels))
        n_unseen = round(0.3 * len(order))
        unseen, trained = order[:n_unseen], order[n_unseen:]
    else:
        unseen, trained = np.flatnonzero(~table.is_trained), rng.permutation(np.flatnonzero(table.is_trained))
    trained = trained[:rows]
    shared = {"random_state": seed, "categorical_features": table.categories or None, **settings}
    # What is left open here suits noise by itself.
    calm = {name: value for name, value in OWN_DEFAULTS.items() if name not in settings}
    noise = {"bounds": table.bounds, "domain_size": domain, "mechanism": mechanism, **MECHANISMS[mechanism]}
    own = table.features.drop(columns=list(table.bounds))
    runs: dict[str, tuple[pd.DataFrame, dict[str, Any]]] = {
        "plain": (table.features, {"epsilon": epsilon, "correct_noise": False, **noise, **calm}),
        "corrected": (table.features, {"epsilon": epsilon, **noise}),
    }
    if not noiseless:
        runs["exact"] = table.features, {"epsilon": np.inf, **noise, **calm}
        if own.shape[1]:
            runs["alone"] = own, calm
    found: dict[str, Any] = {"alone": 0.5 if not table.is_number else 0.0, **noiseless}
    estimator = OpBoostRegressor if table.is_number else OpBoostClassifier
    for name, (features, chosen) in runs.items():
        start = time.perf_counter()
        model = estimator(**shared, **chosen).fit(features.iloc[trained], table.labels[trained])
        found[f"{name}_s"] = round(time.perf_counter() - start, 1)
        found[name] = round(_score(model, features.iloc[unseen], table.labels[unseen]), 4)
        if name == "corrected":
            found["choice"] = model.noise_choice_
    noiseless.update({name: found[name] for name in ("alone", "exact")})
    return found


def _score(model: Any, features: pd.DataFrame, labels: np.ndarray) -> float:
    if isinstance(model, OpBoostRegressor):
        return float(r2(labels, model.predict(features)))
    shares = model.predict_proba(features)
    return float(auc(labels, shares[:, 1]) if shares.shape[1] == 2 else (shares.argmax(axis=1) == labels).mean())


def summarise(cells: list[dict[str, Any]]) -> None:
    """Means over seeds, and what they come to over all tables."""
    groups: dict[tuple[str, str, float], list[dict[str, Any]]] = defaultdict(list)
    for one in cells:
        groups[one["table"], one["mechanism"], one["epsilon"]].append(one)
    names = ("alone", "plain", "corrected", "exact")
    print(f"{'table':20}{'mechanism':10}{'epsilon':>8}" + "".join(f"{name:>11}" for name in names) + "   won back")
    won: dict[float, list[float]] = defaultdict(list)
    behind = []
    for (table, mechanism, epsilon), ones in groups.items():
        alone, plain, corrected, exact = (float(np.mean([one[name] for one in ones])) for name in names)
        share = (corrected - plain) / (exact - plain) if exact - plain > 0.01 else np.nan
        won[epsilon].append(share)
        behind.append(max(alone, plain) - corrected)
        scores = "".join(f"{score:11.4f}" for score in (alone, plain, corrected, exact))
        print(f"{table:20}{mechanism:10}{epsilon:8g}{scores}{share:11.2f}")
    small = [one["corrected"] > one["plain"] for one in cells if 0.02 <= one["epsilon"] <= 0.16]
    print(f"better than plain in {np.mean(small):.0%} of {len(small)} cells at .02 to .16" if small else "")
    print(f"behind the best of plain and alone by {np.mean(behind):.4f} on average, {np.max(behind):.4f} at most")
    for epsilon, shares in sorted(won.items()):
        if not np.isnan(shares).all():
            print(f"won back at {epsilon:g}: {np.nanmean(shares):.2f}")


def draw(cells: list[dict[str, Any]], folder: Path) -> None:
    """Per table: score against budget under Global-Map, plain and corrected."""
    for table in dict.fromkeys(one["table"] for one in cells):
        of_table = [one for one in cells if one["table"] == table and one["mechanism"] == "global"]
        epsilons = sorted({one["epsilon"] for one in of_table})
        curves = [
            Series(
                name,
                tuple(epsilons),
                tuple(
                    float(np.mean([one[name] for one in of_table if one["epsilon"] == epsilon])) for epsilon in epsilons
                ),
            )
            for name in ("exact", "corrected", "plain", "alone")
        ]
        drawing = lines(
            curves,
            x=Axis(label="epsilon per point", is_log=True),
            y=Axis(label="score of unseen records"),
            alt=f"Scores against the privacy budget on {table}",
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"noise_{table}.svg").write_text(standalone(drawing))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--mechanisms", default="global")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--domain", type=int, default=100)
    parser.add_argument("--rows", type=int, default=1_000_000, help="training rows at most")
    parser.add_argument("--trees", type=json.loads, default={}, help="parameters of the estimators, as JSON")
    parser.add_argument("--figures", type=Path, help="folder for figures of score against budget")
    parser.add_argument("--quick", action="store_true", help="one seed, three budgets, 6,000 training rows at most")
    given = parser.parse_args()
    if given.quick:
        given.seeds, given.epsilons, given.rows = 1, ".02,.08,.32", 6_000
    cells = []
    for name in given.tables.split(","):
        table = read(name)
        for mechanism in given.mechanisms.split(","):
            noiseless: dict[int, dict[str, Any]] = defaultdict(dict)
            for epsilon in map(float, given.epsilons.split(",")):
                for seed in range(given.seeds):
                    scores = cell(
                        table, mechanism, epsilon, seed, given.domain, given.rows, given.trees, noiseless[seed]
                    )
                    cells.append({"table": name, "mechanism": mechanism, "epsilon": epsilon, "seed": seed, **scores})
                    print(json.dumps(cells[-1]), flush=True)
    summarise(cells)
    if given.figures is not None:
        draw(cells, given.figures)


if __name__ == "__main__":
    main()
