"""Scores of routed predictions against `label_epsilon`: trees grown on noised labels, leaves fitted to the true ones.

For each table, label epsilon and seed, four models of the same trees are scored on unseen records' exact codes: leaves
fitted to the true labels (refitted, what `label_epsilon` does); leaves of the noised labels too (noised); no noise in
labels (true); and the active party alone, on true labels. Passive columns are released by Global-Map at `--epsilon` per
point of 100. AUC for two classes, R^2 for numbers, whose public bounds are taken to be their 1st and 99th percentiles.

    python scripts/reproduce/labels.py [--tables adult,sample,power_plant] [--epsilons .25,.5,1,2,4] [--epsilon .08]
        [--seeds 3] [--rows 20000] [--figures scripts/figures]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from noise import Table, read

from opboost import rng
from opboost.columns import OwnColumn, RankColumn
from opboost.denoise.channel import ColumnRelease
from opboost.desensitize import ColumnMechanism, desensitize
from opboost.fitting.recipe import OWN_DEFAULTS
from opboost.label_noise import decode_labels, encode_labels, label_mechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.metrics import main_metric
from opboost.preprocess import encode
from opboost.ranking import Ranking, rankings
from opboost.routing import Router, resolve
from opboost.schema import ColumnSchema
from opboost.split_tests import bind, feature_matrix, list_tests
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic, SquaredError
from opboost.vertical import train
from parties.reports.figures import Axis, Series, lines, standalone


class Sides:
    """A table divided between the two parties, with the passive one's release of the training rows."""

    def __init__(self, table: Table, epsilon: float, seed: int, n_rows: int) -> None:
        draw = np.random.default_rng(seed)
        is_trained = table.is_trained
        if is_trained is None:
            is_trained = draw.permutation(len(table.labels)) >= 0.3 * len(table.labels)
        self.trained = draw.permutation(np.flatnonzero(is_trained))[:n_rows]
        self.unseen = np.flatnonzero(~is_trained)
        self.table, self.seed = table, seed
        self.loss = SquaredError() if table.is_number else Logistic()
        settings = MechanismSettings(epsilon=epsilon, domain_size=100)
        self.mechanisms = tuple(
            ColumnMechanism(ColumnSchema(name=name, lower=low, upper=high), settings)
            for name, (low, high) in table.bounds.items()
        )
        own = [name for name in table.features if name not in table.bounds]
        features = table.features.iloc[self.trained]
        self.own = [OwnColumn(n, features[n].to_numpy(), is_categorical=n in table.categories) for n in own]
        self.ranked: list[Ranking] = []
        self.released: list[RankColumn] = []
        bits = rng.seeded(seed)
        for c, mechanism in enumerate(self.mechanisms):
            column = encode(features[mechanism.schema.name], mechanism.schema, domain=settings.domain)
            drawn = desensitize(mechanism, column, rng=bits.fork(mechanism.schema.name))
            (ranking,) = rankings(mechanism.schema, [drawn])
            self.ranked.append(ranking)
            release = ColumnRelease(mechanism.value, None, ranking.table.codes - 1)  # type: ignore[arg-type]
            ranks = ranking.ranks(drawn)
            self.released.append(RankColumn("b", c, mechanism.schema.name, ranks, ranking.table.n_ranks, release))

    def score(self, labels: Any, leaf_labels: Any = None, *, is_alone: bool = False) -> float:
        """The metric of unseen records of a model that is trained on these labels."""
        columns = [*self.own, *([] if is_alone else self.released)]
        if not columns:
            return 0.0 if self.table.is_number else 0.5
        trained = train(
            columns,
            labels,
            np.ones(len(labels)),
            loss=self.loss,
            parameters=BoostingParameters(**OWN_DEFAULTS),
            seed=self.seed,
            leaf_labels=leaf_labels,
        )
        tests = list_tests(trained)
        features, answers = self.table.features.iloc[self.unseen].reset_index(drop=True), {}
        if "b" in tests:
            asked = tests["b"]
            found = resolve(self.ranked, asked.columns, asked.ranks, asked.missing_left)
            answers["b"] = Router(self.mechanisms, found).answer(features, rng=None)
        own = {column.name: features[column.name].to_numpy() for column in self.own}
        ensemble = bind(trained, tests)
        predicted = ensemble.predict(feature_matrix(ensemble, own, answers, len(features)))
        return main_metric(self.loss).of(self.table.labels[self.unseen], predicted)


def cells(name: str, epsilons: list[float], epsilon: float, seed: int, n_rows: int) -> list[dict[str, Any]]:
    """Scores of one table and seed, a line per label epsilon."""
    table = read(name)
    sides = Sides(table, epsilon, seed, n_rows)
    labels = table.labels[sides.trained]
    true, alone = sides.score(labels), sides.score(labels, is_alone=True)
    bounds = tuple(np.quantile(labels, (0.01, 0.99)).tolist()) if table.is_number else None
    found = []
    for label_epsilon in epsilons:
        mechanism = label_mechanism("y", sides.loss, label_epsilon, bounds)
        drawn = desensitize(mechanism, encode_labels(mechanism, labels), rng=rng.seeded(1000 + seed))
        noised = decode_labels(mechanism, drawn)
        scores = {"alone": alone, "noised": sides.score(noised), "refitted": sides.score(noised, labels), "true": true}
        found.append({"table": name, "label_epsilon": label_epsilon, "seed": seed, **scores})
        print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="adult,sample,power_plant")
    parser.add_argument("--epsilons", default=".25,.5,1,2,4")
    parser.add_argument("--epsilon", type=float, default=0.08, help="budget per point of the passive columns")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000, help="training rows at most")
    parser.add_argument("--figures", type=Path, help="folder for figures of score against label_epsilon")
    given = parser.parse_args()
    epsilons, names = list(map(float, given.epsilons.split(","))), ("true", "refitted", "noised", "alone")
    for table in given.tables.split(","):
        found = [one for seed in range(given.seeds) for one in cells(table, epsilons, given.epsilon, seed, given.rows)]
        means = {
            name: tuple(float(np.mean([one[name] for one in found if one["label_epsilon"] == e])) for e in epsilons)
            for name in names
        }
        for k, label_epsilon in enumerate(epsilons):
            print(f"{table:12}{label_epsilon:6g}" + "".join(f"  {name} {means[name][k]:.3f}" for name in names))
        if given.figures is not None:
            drawing = lines(
                [Series(name, tuple(epsilons), means[name]) for name in names],
                x=Axis(label="label_epsilon", is_log=True),
                y=Axis(label="score of unseen records"),
                alt=f"Scores against label_epsilon on {table}",
            )
            (given.figures / f"labels_{table}.svg").write_text(standalone(drawing))


if __name__ == "__main__":
    main()
