"""What answers by split tests and by cells tell and what they are worth, as JSON lines.

Scores: of models that are asked for all split tests and for cells, trained on the same release, on unseen records'
exact values, with the tables, division and parameters of `noise.py`; and the bytes of an answer.

Labels: a passive party brings random columns of 0 and 1, and 20 labels that it knows. The columns that trees split on
agree with the labels more than chance has it, so the first singular vector of these columns tells the other labels.
With cells nothing comes back, and it has all of its columns to look at.

Six parties that pool what they read; and, as other systems tell more: clusters of records that lie in the same leaves.

Codes: how many codes of the mapped domain agree with all that the active party may ask about a record, whatever models
it trains, averaged over records: those of the record's cell; or those between the thresholds of one model's tests.

    python scripts/reproduce/answers.py [--tables adult,sample] [--epsilons .02,.08] [--seeds 3] [--trials 20]
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from noise import OWN_DEFAULTS, Table, read

from opboost import OpBoostClassifier, OpBoostRegressor
from opboost.columns import OwnColumn, RankColumn
from opboost.metrics import auc, r2
from opboost.split_tests import bind, feature_matrix, list_tests, n_answer_bits
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic
from opboost.vertical import train

# Records and columns of the attack on labels, and the labels that are known.
N_RECORDS, N_PROBES, N_KNOWN = 300, 6_000, 20


def scores(table: Table, epsilon: float, seed: int, domain: int) -> dict[str, Any]:
    """Scores by tests and by cells, bytes per answer, and codes that are left open."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table.labels))
    unseen, trained = order[: round(0.3 * len(order))], order[round(0.3 * len(order)) :]
    if table.is_trained is not None:
        unseen, trained = np.flatnonzero(~table.is_trained), rng.permutation(np.flatnonzero(table.is_trained))
    found: dict[str, Any] = {}
    estimator = OpBoostRegressor if table.is_number else OpBoostClassifier
    for answers in ("tests", "cells"):
        model = estimator(
            epsilon=epsilon,
            bounds=table.bounds,
            domain_size=domain,
            categorical_features=table.categories or None,
            answers=answers,
            random_state=seed,
            **OWN_DEFAULTS,
        ).fit(table.features.iloc[trained], table.labels[trained])
        features, labels = table.features.iloc[unseen], table.labels[unseen]
        if table.is_number:
            found[answers] = round(float(r2(labels, model.predict(features))), 4)
        else:
            found[answers] = round(float(auc(labels, model.predict_proba(features)[:, 1])), 4)
        found[f"{answers}_bytes"] = -(-n_answer_bits(model.model_.ensemble, "passive") // 8)
        found[f"{answers}_codes_left"] = codes_left(model, features, domain)
    return found


def codes_left(model: Any, features: Any, domain: int) -> float:
    """Codes of a record's value that agree with the answers to all tests of a model, or with its cell."""
    router, left = model._share.router, []
    for mechanism, encoded in router.encode(features):
        mine = [i for i, (source, _) in enumerate(router.tests.sources) if source == mechanism.schema.name]
        cuts = np.unique(np.floor(router.tests.thresholds[mine]).clip(0, domain))
        edges = np.unique(np.concatenate([[0], cuts, [domain]]))
        left.append(np.diff(edges)[np.searchsorted(edges, encoded.codes) - 1].mean())
    return round(float(np.mean(left)), 1)


def inferred_labels(seed: int, *, by_cells: bool) -> float:
    """Share of labels that a passive party guesses from what it reads of a training run."""
    draw = np.random.default_rng(seed)
    labels = (draw.random(N_RECORDS) < 0.53).astype(float)
    probes = draw.integers(0, 2, (N_PROBES, N_RECORDS)).astype(np.uint32)
    cuts = np.zeros(1, np.int64) if by_cells else None
    columns = [RankColumn("b", i, f"p{i}", probe, 2, cuts=cuts) for i, probe in enumerate(probes)]
    stumps = BoostingParameters(n_estimators=100, max_depth=1)
    own = OwnColumn("own", draw.normal(size=N_RECORDS))
    trained = train([own, *columns], labels, np.ones(N_RECORDS), loss=Logistic(), parameters=stumps, seed=seed)
    asked = np.unique(list_tests(trained)["b"].columns)
    return guessed(probes[asked] if len(asked) else probes, labels)


def pooled_labels(seed: int, n_owners: int) -> tuple[float, float]:
    """What so many passive parties guess that pool the columns which trees split on, and the first of them alone."""
    draw = np.random.default_rng(seed)
    labels = (draw.random(N_RECORDS) < 0.53).astype(float)
    probes = draw.integers(0, 2, (n_owners, N_PROBES // n_owners, N_RECORDS)).astype(np.uint32)
    columns = [RankColumn(f"b{o}", i, f"p{o} {i}", one, 2) for o, own in enumerate(probes) for i, one in enumerate(own)]
    own = OwnColumn("own", draw.normal(size=N_RECORDS))
    stumps = BoostingParameters(n_estimators=100, max_depth=1)
    trained = train([own, *columns], labels, np.ones(N_RECORDS), loss=Logistic(), parameters=stumps, seed=seed)
    seen = [mine[np.unique(one.columns)] for mine, one in zip(probes, list_tests(trained).values(), strict=True)]
    return guessed(np.concatenate(seen), labels), guessed(seen[0], labels)


def clustered_labels(seed: int) -> tuple[float, float]:
    """What clusters of records tell that lie in the same leaves, as passive parties of SecureBoost know, and in cells.

    The graph of records that share instance spaces is cut in two by its spectrum, in the manner of ID2Graph.
    """
    draw = np.random.default_rng(seed)
    labels = (draw.random(N_RECORDS) < 0.53).astype(float)
    own = OwnColumn("own", labels + draw.normal(size=N_RECORDS) / 2)
    ranks = draw.integers(0, 16, (10, N_RECORDS)).astype(np.uint32)
    columns = [RankColumn("b", i, f"c{i}", one, 16, cuts=np.arange(15)) for i, one in enumerate(ranks)]
    trees = BoostingParameters(n_estimators=30, max_depth=3)
    trained = train([own, *columns], labels, np.ones(N_RECORDS), loss=Logistic(), parameters=trees, seed=seed)
    ensemble = bind(trained, list_tests(trained))
    matrix = feature_matrix(ensemble, {"own": own.values}, {"b": ranks.T.astype(float)}, N_RECORDS)
    leaves = np.hstack([one[:, None] == np.unique(one) for one in ensemble.leaves(matrix).T])
    sides = (ranks.T[:, :, None] < np.arange(1, 16)).reshape(N_RECORDS, -1)
    return clustered(leaves, labels), clustered(np.hstack([sides, ~sides]), labels)


def clustered(spaces: np.ndarray, labels: np.ndarray) -> float:
    """Share of the unknown labels that agree with the spectral cut of the graph of shared instance spaces."""
    shared = spaces.astype(float) @ spaces.T
    root = 1 / np.sqrt(shared.sum(axis=1))
    agrees = (np.linalg.eigh(root[:, None] * shared * root)[1][:, -2] > 0) == (labels == 1)
    agrees = agrees if agrees[:N_KNOWN].mean() >= 0.5 else ~agrees
    return float(agrees[N_KNOWN:].mean())


def guessed(probes: np.ndarray, labels: np.ndarray) -> float:
    """Share of the unknown labels that agree with the first singular vector of columns, its sign by the known ones."""
    centred = probes.T - probes.mean(axis=1)
    values, vectors = np.linalg.eigh(centred @ centred.T)
    guess = vectors[:, np.argmax(values)] > 0
    agrees = guess == (labels == 1)
    agrees = agrees if agrees[:N_KNOWN].mean() >= 0.5 else ~agrees
    return float(agrees[N_KNOWN:].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="adult,sample")
    parser.add_argument("--epsilons", default=".08")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--domain", type=int, default=100)
    parser.add_argument("--trials", type=int, default=20, help="of the attack on labels")
    given = parser.parse_args()
    for name in filter(None, given.tables.split(",")):
        table = read(name)
        for epsilon in map(float, given.epsilons.split(",")):
            for seed in range(given.seeds):
                found = scores(table, epsilon, seed, given.domain)
                print(json.dumps({"table": name, "epsilon": epsilon, "seed": seed, **found}), flush=True)
    attacks = {
        ("labels", "tests"): [inferred_labels(seed, by_cells=False) for seed in range(given.trials)],
        ("labels", "cells"): [inferred_labels(seed, by_cells=True) for seed in range(given.trials)],
    }
    pooled = [pooled_labels(seed, 6) for seed in range(given.trials)]
    clusters = [clustered_labels(seed) for seed in range(given.trials)]
    attacks |= {("labels, six parties together", "tests"): [one for one, _ in pooled]}
    attacks |= {("labels, one of six parties", "tests"): [one for _, one in pooled]}
    attacks |= {("clusters", "instance spaces"): [one for one, _ in clusters]}
    attacks |= {("clusters", "cells"): [one for _, one in clusters]}
    for (attack, answers), shares in attacks.items():
        error = np.std(shares, ddof=1) / np.sqrt(len(shares)) if len(shares) > 1 else 0.0
        found = {"guessed": round(float(np.mean(shares or [0])), 3), "standard_error": round(float(error), 3)}
        print(json.dumps({"attack": attack, "answers": answers, **found}), flush=True)


if __name__ == "__main__":
    main()
