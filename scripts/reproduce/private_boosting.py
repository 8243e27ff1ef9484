"""Private boosting side by side: our estimators, DP-EBM, diffprivlib and no privacy, on twelve tables.

Ten tables of ``tables.yaml``, the sample and scikit-learn's digits: raw columns, public bounds, categories by their
place in the alphabet, 5-fold cross-validation (or some of its folds), delta one over the training rows, estimators as
they are by default. AUC for two classes, accuracy for several, R^2 for numbers. Prints JSON lines, and tables in
Markdown with ``--read``. A system that is not installed is passed over, and a line says so; DP-EBM (`interpret-core`)
and `diffprivlib` may live in an environment of their own:

    python scripts/reproduce/private_boosting.py --systems ours > ours.jsonl
    RIVALS/bin/python scripts/reproduce/private_boosting.py --systems rivals > rivals.jsonl
    python scripts/reproduce/private_boosting.py --systems DPBoosting --made-hard noise > noise.jsonl
    python scripts/reproduce/private_boosting.py --read ours.jsonl rivals.jsonl --draw scripts/figures/rows.svg
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"

# Bounds that tables.yaml has in words.
SPAM_RUNS = {"f54": (1, 1000), "f55": (1, 10000), "f56": (1, 20000)}

# S-BDT's own reruns at a delta of 5e-8, of which Adult's cost up to 1.06 times as much: RMSE and AUC.
PUBLISHED = {
    "abalone": {0.05: 2.920, 0.1: 2.754, 0.2: 2.664, 0.3: 2.620, 0.5: 2.582},
    "adult": {0.01: 0.787, 0.02: 0.831, 0.03: 0.849, 0.1: 0.876, 0.5: 0.893},
}


class Table(NamedTuple):
    """Rows, labels, and what is public of them."""

    X: np.ndarray
    y: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray]
    categories: list[int]
    label_bounds: tuple[float, float] | None

    @property
    def n_classes(self) -> int:
        return 0 if self.label_bounds else int(self.y.max()) + 1


Model = Callable[[Table, float, float, int], Any]


def _with_noise(table: Table) -> Table:
    """With 100 columns of noise."""
    noise = np.random.default_rng(5).random((len(table.X), 100))
    lower, upper = table.bounds
    bounds = np.concatenate([lower, np.zeros(100)]), np.concatenate([upper, np.ones(100)])
    return table._replace(X=np.column_stack([table.X, noise]), bounds=bounds)


def _with_wide_bound(table: Table) -> Table:
    """With an upper bound of the first column of numbers that is 1000 times as far away."""
    lower, upper = table.bounds
    column = np.setdiff1d(np.arange(len(lower)), table.categories)[0]
    upper = upper.copy()
    upper[column] = lower[column] + 1000 * (upper[column] - lower[column])
    return table._replace(bounds=(lower, upper))


def _with_wide_labels(table: Table) -> Table:
    """With label bounds 10 times as wide."""
    if table.label_bounds is None:
        raise NotImplementedError("classes have no bounds")
    lower, upper = table.label_bounds
    return table._replace(label_bounds=(lower, lower + 10 * (upper - lower)))


def _with_few_rows(table: Table) -> Table:
    """With 625 rows, of which 500 are trained on."""
    kept = np.random.default_rng(6).permutation(len(table.y))[:625]
    return table._replace(X=table.X[kept], y=table.y[kept])


HARD = {"noise": _with_noise, "bound": _with_wide_bound, "labels": _with_wide_labels, "few": _with_few_rows}


def load(name: str, folder: Path) -> Table:
    """A table of the folder, the sample, or scikit-learn's digits."""
    if name == "sample":
        return _sample()
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return Table(X, y, (np.zeros(64), np.full(64, 16.0)), [], None)
    told = yaml.safe_load((folder / "tables.yaml").read_text())[name]
    frame = pd.read_csv(folder / f"{name}.csv.gz", na_values="?")
    if "split" in frame:
        frame = frame[frame.pop("split") == "train"]
    labels, numeric = frame.pop(told["label"]), told["numeric"]
    if isinstance(numeric, str):
        numeric = {c: (0, 15) if name == "letter" else SPAM_RUNS.get(c, (0, 100)) for c in frame}
    if not pd.api.types.is_numeric_dtype(labels):
        labels = labels.astype("category").cat.codes
    return _table(frame, labels, numeric, told["categories"], told.get("label_bounds"))


def _sample() -> Table:
    """Both parties' rows, joined by their ids."""
    sides = {side: pd.read_csv(ROOT / "data" / f"{side}.csv.gz") for side in ("bank", "retailer")}
    told = {side: yaml.safe_load((ROOT / "data" / f"{side}.schema.yaml").read_text()) for side in sides}
    frame = sides["bank"].merge(sides["retailer"], on="id")
    columns = told["bank"]["columns"] | told["retailer"]["columns"]
    numeric = {name: (each["lower"], each["upper"]) for name, each in columns.items() if each["kind"] == "numeric"}
    return _table(frame, frame[told["bank"]["label"]], numeric, [name for name in columns if name not in numeric], None)


def _table(frame: pd.DataFrame, labels: Any, numeric: Any, categories: list[str], label_bounds: Any) -> Table:
    frame = frame[[name for name in frame if name in numeric or name in categories]].copy()
    for name in categories:
        codes = frame[name].astype("category").cat.codes.astype(float)
        frame[name] = codes.where(codes >= 0)
    bounds = [numeric.get(name, (0.0, frame[name].max())) for name in frame]
    lower, upper = (np.array([bound[end] for bound in bounds], float) for end in (0, 1))
    listed = [frame.columns.get_loc(name) for name in categories]
    return Table(frame.to_numpy(float), labels.to_numpy(), (lower, upper), listed, label_bounds and tuple(label_bounds))


def ours(kind: str, **settings: Any) -> Model:
    """An estimator of opboost, by the beginning of its name and perhaps a named method."""
    family, _, method = kind.partition(".")

    def fit(table: Table, epsilon: float, delta: float, seed: int) -> Any:
        import opboost

        if not table.n_classes and settings.get("delta") == 0:
            raise NotImplementedError("classes only")
        estimator = getattr(opboost, family + ("Classifier" if table.n_classes else "Regressor"))
        public: dict[str, Any] = {"bounds": table.bounds, "epsilon": epsilon, "random_state": seed, **settings}
        if "Federated" not in family:
            public["categorical_features"] = table.categories
        if family not in ("DPBoost", "InPrivate"):
            public.setdefault("delta", delta)
        public |= {"classes": range(table.n_classes)} if table.n_classes else {"label_bounds": table.label_bounds}
        model = (getattr(estimator, method) if method else estimator)(**public)
        return model.fit(table.X, table.y)

    return fit


class Prepared:
    """A model whose rows are changed before it sees them."""

    def __init__(self, model: Any, change: Callable[[np.ndarray], np.ndarray], table: Table) -> None:
        self.model, self.change = model.fit(change(table.X), table.y), change

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(self.change(X)))

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict_proba(self.change(X)))


def dp_ebm(table: Table, epsilon: float, delta: float, seed: int) -> Any:
    """InterpretML's private additive model, of two classes or numbers; empty cells are the lower bound, or -1."""
    if table.n_classes > 2:
        raise NotImplementedError("DP-EBM has two classes")
    from interpret import privacy

    settings: dict[str, Any] = {
        "feature_types": ["nominal" if j in table.categories else "continuous" for j in range(table.X.shape[1])],
        "privacy_bounds": dict(enumerate(zip(*table.bounds, strict=True))),
        "epsilon": epsilon,
        "delta": delta,
        "random_state": seed,
        "n_jobs": 1,
    }
    empty = table.bounds[0] - np.isin(np.arange(table.X.shape[1]), table.categories)
    if table.label_bounds is None:
        model = privacy.DPExplainableBoostingClassifier(**settings)
    else:
        lower, upper = table.label_bounds
        model = privacy.DPExplainableBoostingRegressor(privacy_target_min=lower, privacy_target_max=upper, **settings)
    return Prepared(model, lambda X: np.where(np.isnan(X), empty, X), table)


def diffprivlib(table: Table, epsilon: float, delta: float, seed: int) -> Any:
    """A purely private forest, or linear model of numbers; columns scaled to [0, 1] by their bounds, empty cells 0."""
    from diffprivlib import models

    lower, upper = table.bounds
    if table.label_bounds is None:
        listed = list(range(table.n_classes))
        model = models.RandomForestClassifier(epsilon=epsilon, bounds=(0, 1), classes=listed, random_state=seed)
    else:
        model = models.LinearRegression(
            epsilon=epsilon, bounds_X=(0, 1), bounds_y=table.label_bounds, random_state=seed
        )
    return Prepared(model, lambda X: np.clip(np.nan_to_num((X - lower) / (upper - lower)), 0, 1), table)


def without_privacy(table: Table, epsilon: float, delta: float, seed: int) -> Any:
    """The ceiling."""
    kind = HistGradientBoostingClassifier if table.n_classes else HistGradientBoostingRegressor
    return kind(random_state=seed).fit(table.X, table.y)


OURS: dict[str, Model] = {
    "DPBoosting": ours("DPBoosting"),
    "DPBoosting pure": ours("DPBoosting", delta=0.0),
    "SGBDT": ours("SGBDT"),
    "DP-TR Newton": ours("FederatedGBDT.dp_tr_newton"),
    "DP-TR Newton IH": ours("FederatedGBDT.dp_tr_newton_ih"),
    "DP-EBM Newton": ours("FederatedGBDT.dp_ebm_newton"),
    "DPBoost": ours("DPBoost"),
    "InPrivate": ours("InPrivate"),
}
RIVALS: dict[str, Model] = {"DP-EBM": dp_ebm, "diffprivlib": diffprivlib}
SYSTEMS = {**OURS, **RIVALS, "no privacy": without_privacy}
GROUPS = {"ours": list(OURS), "rivals": [*RIVALS, "no privacy"]}
TWO_CLASSES = ["adult", "spambase", "magic", "shoppers", "sample"]
NUMBERS = ["abalone", "power_plant", "wine_white", "california_housing", "bike_sharing"]
TABLES = [*TWO_CLASSES, "letter", "digits", *NUMBERS]


def score(model: Any, X: np.ndarray, y: np.ndarray, n_classes: int) -> float:
    """AUC, accuracy or R^2."""
    if n_classes == 2:
        return float(roc_auc_score(y, model.predict_proba(X)[:, 1]))
    return float((accuracy_score if n_classes else r2_score)(y, model.predict(X)))


def compared(table: Table, fit: Model, epsilon: float, n_folds: int, seeds: int) -> Iterator[float]:
    """The score of every fold and seed."""
    order = np.random.default_rng(0).permutation(len(table.y))
    for fold in range(n_folds):
        test = order[fold::5]
        train = np.setdiff1d(order, test)
        for seed in range(seeds):
            part = table._replace(X=table.X[train], y=table.y[train])
            model = fit(part, epsilon, 1 / len(train), 1000 * fold + seed)
            yield score(model, table.X[test], table.y[test], table.n_classes)


def measure(arguments: argparse.Namespace) -> None:
    """Print a line per table, system and epsilon."""
    warnings.simplefilter("ignore")
    systems = [name for each in arguments.systems for name in GROUPS.get(each, [each])]
    for name in arguments.tables:
        table = load(name, arguments.data)
        try:
            table = HARD[arguments.made_hard](table) if arguments.made_hard else table
        except NotImplementedError:
            continue
        for system in systems:
            for epsilon in [float("inf")] if system == "no privacy" else arguments.epsilons:
                started, line = time.perf_counter(), {"table": name, "system": system, "epsilon": str(epsilon)}
                try:
                    scores = list(compared(table, SYSTEMS[system], epsilon, arguments.folds, arguments.seeds))
                except (ImportError, NotImplementedError) as error:
                    print(json.dumps({**line, "skipped": str(error)}), flush=True)
                    break
                figures = {"mean": np.mean(scores), "se": np.std(scores) / np.sqrt(len(scores))}
                figures["seconds"] = (time.perf_counter() - started) / len(scores)
                rounded = {key: round(float(value), 4) for key, value in figures.items()}
                print(json.dumps({**line, **rounded, "fits": len(scores)}), flush=True)


def read(files: list[Path]) -> None:
    """Print the lines of files as a table per data set, and how far the recommended estimator is from the best."""
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    cells = pd.DataFrame([line for line in lines if "mean" in line])
    private = cells[cells["system"] != "no privacy"]
    wide = private.pivot_table(index=["table", "epsilon"], columns="system", values="mean")
    ceiling = cells[cells["system"] == "no privacy"].set_index("table")["mean"]
    wide["no privacy"] = [ceiling.get(name) for name, _ in wide.index]
    print("| table | epsilon |", " | ".join(wide.columns), "|\n|" + "---|" * (2 + len(wide.columns)))
    for (name, epsilon), row in wide.iterrows():
        print(f"| {name} | {epsilon} |", " | ".join("" if pd.isna(v) else f"{v:.3f}" for v in row), "|")
    best = wide.drop(columns=["no privacy", "DPBoosting"], errors="ignore").max(axis=1)
    behind = (best - wide["DPBoosting"]).dropna()
    print(
        f"\nDPBoosting is first in {(behind <= 0).mean():.0%} of {len(behind)} cells; at most {behind.max():.3f} behind"
    )


def draw(files: list[Path], out: Path) -> None:
    """Draw a panel per table: scores against epsilon, a line per system; R^2 below 0 and AUC below .5 are left out."""
    from matplotlib.figure import Figure

    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    cells = pd.DataFrame([line for line in lines if "mean" in line])
    names = [name for name in TABLES if name in set(cells["table"])]
    figure = Figure(figsize=(12, 2.4 * math.ceil(len(names) / 4)), layout="constrained")
    for place, name in enumerate(names):
        axes = figure.add_subplot(math.ceil(len(names) / 4), 4, place + 1, title=name, xscale="log")
        for number, system in enumerate([each for each in SYSTEMS if each in set(cells["system"])]):
            own = cells[(cells["table"] == name) & (cells["system"] == system)].astype({"epsilon": float})
            own = own[own["mean"] > (0.5 if name in TWO_CLASSES else 0)].sort_values("epsilon")
            if system == "no privacy":
                for level in own["mean"]:
                    axes.axhline(level, color="grey", linestyle=":", label=system)
            elif len(own):
                axes.plot(own["epsilon"], own["mean"], marker=".", color=f"C{number}", label=system)
        if not place:
            axes.legend(fontsize="x-small")
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    """Measure, or read what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--read", type=Path, nargs="+")
    parser.add_argument("--draw", type=Path, help="with --read: an SVG file")
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--tables", type=lambda text: text.split(","), default=TABLES)
    parser.add_argument("--systems", type=lambda text: text.split(","), default=list(SYSTEMS))
    parser.add_argument(
        "--epsilons", type=lambda text: [float(each) for each in text.split(",")], default=[0.1, 0.5, 1, 4]
    )
    parser.add_argument("--folds", type=int, default=5, help="of five")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--made-hard", choices=HARD, help="change the tables in this way")
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.read)
        if arguments.draw:
            draw(arguments.read, arguments.draw)
    else:
        measure(arguments)


if __name__ == "__main__":
    main()
