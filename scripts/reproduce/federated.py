"""Adult's numbers of "Federated Boosted Decision Trees with Differential Privacy" (CCS 2022), as JSON lines.

Tables 3, 4, 5 and 9-12 in the mode `paper`: rows without missing cells, every column coded by the rank of its distinct
values, stratified 70/30 splits. Then the mode `default` with nothing changed but the epsilon, and the named methods.

    python scripts/reproduce/federated.py [--runs 15] [--cases tables,split_candidates,batches,default,named,speed]
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from opboost import FederatedGBDTClassifier, rng
from opboost.horizontal.federated.training import Choices, train
from opboost.horizontal.federated.weight_updates import LeafRule, weight_update
from opboost.horizontal.noise.query_account import query_account
from opboost.horizontal.rows.client_rows import ClientRows
from opboost.horizontal.rows.record_holder import Clipping
from opboost.horizontal.splits.split_candidates import log_candidates, quantile_candidates, uniform_candidates
from opboost.metrics import auc
from opboost.trees.losses import Logistic
from opboost.trees.tree import Ensemble, Feature

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

# Table, epsilon, and for hist, pr, tr by gradient, averaging, newton: mean and standard deviation.
SPLITS = {
    "9": (0.1, [(0.6385, 0.0892), (0.6518, 0.0984), (0.6842, 0.0572), (0.6512, 0.0517), (0.7036, 0.0660),
                (0.7207, 0.0413), (0.8173, 0.0167), (0.8471, 0.0086), (0.8385, 0.0080)]),
    "10": (0.25, [(0.6927, 0.0522), (0.6631, 0.0626), (0.7547, 0.0384), (0.7094, 0.0266), (0.7699, 0.0494),
                  (0.8103, 0.0183), (0.8551, 0.0085), (0.8608, 0.0036), (0.8619, 0.0067)]),
    "3": (0.5, [(0.6749, 0.0524), (0.6373, 0.0457), (0.8013, 0.0225), (0.7688, 0.0253), (0.8281, 0.0183),
                (0.8416, 0.0108), (0.8737, 0.0056), (0.8666, 0.0043), (0.8718, 0.0049)]),
    "11": (0.75, [(0.6913, 0.0252), (0.6421, 0.0265), (0.8264, 0.0164), (0.7874, 0.0233), (0.8419, 0.0117),
                  (0.8558, 0.0097), (0.8800, 0.0049), (0.8701, 0.0031), (0.8845, 0.0046)]),
    "12": (1.0, [(0.6803, 0.0288), (0.6597, 0.0294), (0.8332, 0.0204), (0.8196, 0.0080), (0.8546, 0.0065),
                 (0.8631, 0.0076), (0.8855, 0.0031), (0.8690, 0.0057), (0.8893, 0.0033)]),
}  # fmt: skip
CANDIDATES = {
    "ih": (0.8888, 0.0035),
    "quantile": (0.8823, 0.0047),
    "log": (0.8848, 0.0054),
    "uniform": (0.8862, 0.0034),
}
BATCHES = {"DP-RF": (0.8438, 0.0086), "10": (0.8600, 0.0057), "100": (0.8443, 0.0065), "200": (0.8382, 0.0105),
           "1": (0.8371, 0.0148)}  # fmt: skip
DEFAULT_TARGETS = {0.1: 0.875, 0.5: 0.897, 1.0: 0.902}


@functools.cache
def adult() -> tuple[np.ndarray, np.ndarray]:
    """Ranks of distinct values, and incomes over 50,000 as 1."""
    frame = pd.read_csv(DATA / "adult.csv.gz", na_values="?")
    frame = frame[frame.pop("split") == "train"].dropna()
    labels = frame.pop("income").astype("category").cat.codes.to_numpy()
    ranks = np.column_stack([np.unique(frame[name], return_inverse=True)[1] for name in frame.columns])
    return ranks.astype(float), labels


def bounds() -> list[tuple[float, float]]:
    """Public: how many values a column may have."""
    return [(0.0, float(column.max())) for column in adult()[0].T]


def splits(runs: int) -> Iterator[tuple[int, Any]]:
    """Five divisions, used in turn, and a seed of the noise for each run."""
    X, y = adult()
    for run in range(runs):
        yield run, train_test_split(X, y, test_size=0.3, random_state=run % 5, stratify=y)


def scored(runs: int, method: Any = FederatedGBDTClassifier, **settings: Any) -> dict[str, Any]:
    """Mean and deviation of the test AUC over runs."""
    lower, upper = np.transpose(bounds())
    scores = []
    for run, (X, X_test, y, y_test) in splits(runs):
        model = method(bounds=(lower, upper), random_state=run, **settings).fit(X, y)
        scores.append(auc(y_test, model.predict_proba(X_test)[:, 1]))
    return summary(scores)


def summary(scores: list[float], printed: tuple[float, float] | None = None) -> dict[str, Any]:
    """What a line says of scores."""
    line: dict[str, Any] = {"ours": round(float(np.mean(scores)), 4), "sd": round(float(np.std(scores)), 4)}
    return line if printed is None else compared(line, printed)


def compared(line: dict[str, Any], printed: tuple[float, float]) -> dict[str, Any]:
    """A line beside the printed mean and deviation."""
    mean, deviation = printed
    return {"printed": mean, "printed_sd": deviation, **line, "sds_off": round((line["ours"] - mean) / deviation, 2)}


def tables(runs: int) -> Iterator[dict[str, Any]]:
    """Split methods and weight updates (tables 3, 9-12)."""
    for table, (epsilon, cells) in SPLITS.items():
        for place, printed in enumerate(cells):
            split, update = ("hist", "pr", "tr")[place // 3], ("gradient", "averaging", "newton")[place % 3]
            line = scored(
                runs, mode="paper", epsilon=epsilon, split_method=split, weight_update=update,
                n_estimators=200 if split == "tr" else 25,
            )  # fmt: skip
            yield {"table": table, "cell": f"{split}/{update}", **compared(line, printed)}


def split_candidates(runs: int) -> Iterator[dict[str, Any]]:
    """Split candidates (table 4), G and H asked for one after the other: noise on h a quarter of that on g."""
    for name, printed in CANDIDATES.items():
        yield {"table": "4", "cell": name, **summary(list(two_query_scores(runs, name)), printed)}


def two_query_scores(runs: int, name: str) -> Iterator[float]:
    """Random trees, epsilon 1, T = 100. A pair of queries is one of the vector (g, 4 h), of sensitivity sqrt(2)."""
    update = weight_update("newton", is_classification=True, is_printed=True)
    clipping = Clipping(max_grad=1.0, max_hess=0.25, ratio=0.25)
    # A question for Hessians is one query, half of such a pair.
    update = replace(update, clipping=clipping, hess_sensitivity=0.25 * math.sqrt(2))
    choices = Choices(split_method="tr", refining="printed" if name == "ih" else "none", n_trees=100, max_depth=4)
    leaf = LeafRule(learning_rate=0.3, reg_lambda=1.0, max_leaf=2.0, is_printed=True)
    for run, (X, X_test, y, y_test) in splits(runs):
        columns = {
            "log": lambda: log_candidates(bounds(), 32),
            "quantile": lambda X=X: quantile_candidates(bounds(), 32, X),
        }.get(name, lambda: uniform_candidates(bounds(), 32))()
        n_pairs = (choices.n_queries(X.shape[1]) + choices.n_trees) // 2
        account = query_account(n_pairs, epsilon=1.0, delta=1 / len(X), is_printed=True)
        clients = ClientRows(
            X, y.astype(float), columns=columns, gradients=update.gradients, clipping=update.clipping, walks=True
        )
        trained = train(
            clients, columns, choices, update=update, leaf=leaf, multiplier=account.multiplier, rng=rng.seeded(run)
        )
        features = tuple(Feature(str(column)) for column in range(X.shape[1]))
        yield auc(y_test, Ensemble(trained.trees, np.zeros(1), Logistic(), features).predict(X_test))


def batches(runs: int) -> Iterator[dict[str, Any]]:
    """Batched updates (table 5, its true reading)."""
    for name, printed in BATCHES.items():
        settings = {"weight_update": "averaging"} if name == "DP-RF" else {"batch_size": int(name)}
        yield {"table": "5", "cell": name, **compared(scored(runs, mode="paper", epsilon=0.1, **settings), printed)}


def default(runs: int) -> Iterator[dict[str, Any]]:
    """Random trees with Newton updates in the mode `default`."""
    for epsilon, target in DEFAULT_TARGETS.items():
        line = scored(runs, epsilon=epsilon, delta=1 / 21113)
        yield {"table": "default", "cell": f"tr/newton at {epsilon}", "target": target, **line}


def named(runs: int) -> Iterator[dict[str, Any]]:
    """The named methods at epsilon 0.1 in the mode `default`, to reach 0.88."""
    kind = FederatedGBDTClassifier
    methods = {
        "FEVERLESS": kind.feverless, "DP-GBM": kind.dp_gbm, "DP-RF": kind.dp_rf,
        "DP-EBM": functools.partial(kind.dp_ebm, n_estimators=100), "DP-EBM Newton": kind.dp_ebm_newton,
        "DP-TR Newton": kind.dp_tr_newton, "DP-TR Newton IH": kind.dp_tr_newton_ih,
        "DP-TR Newton IH EBM": kind.dp_tr_newton_ih_ebm,
        "DP-TR Batch Newton IH EBM (p=.25)": kind.dp_tr_batch_newton_ih_ebm,
        "DP-TR Batch Newton IH EBM (p=1)": functools.partial(kind.dp_tr_batch_newton_ih_ebm, share=1.0),
        "LDP": kind.ldp,
    }  # fmt: skip
    for name, method in methods.items():
        yield {"table": "named", "cell": name, **scored(runs, method, epsilon=0.1, delta=1 / 21113)}


def speed(runs: int) -> Iterator[dict[str, Any]]:
    """Seconds of the processor, 22,400 rows of 14 columns, after compilation: the least and the median of runs.

    On one thread: where several wait for each other, the waiting counts too.
    """
    numba.set_num_threads(1)
    generator = np.random.default_rng(0)
    X = generator.random((22_400, 14))
    y = X[:, 0] + 0.3 * generator.standard_normal(len(X)) > 0.5
    for split, n_trees, target in (("tr", 200, 0.15), ("hist", 20, 0.1)):
        model = FederatedGBDTClassifier(
            epsilon=1.0, delta=1e-5, bounds=(0, 1), split_method=split, n_estimators=n_trees
        )  # fmt: skip
        times = []
        for _ in range(runs + 1):
            started = time.process_time()
            model.fit(X, y)
            times.append(time.process_time() - started)
        least, median = min(times[1:]), float(np.median(times[1:]))
        yield {"table": "speed", "cell": f"{split}/newton T={n_trees}", "target": target,
               "least": round(least, 3), "median": round(median, 3)}  # fmt: skip


CASES = {
    "tables": tables, "split_candidates": split_candidates, "batches": batches, "default": default, "named": named,
    "speed": speed,
}  # fmt: skip


def main() -> None:
    """Run the cases that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES))
    arguments = parser.parse_args()
    for name in arguments.cases:
        for line in CASES[name](arguments.runs):
            shown = {key: "inf" if value == math.inf else value for key, value in line.items()}
            print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    main()
