"""`opboost compile-loops`: ahead-of-time compilation of the kernels that the first run would compile."""

from __future__ import annotations

from typing import Any, get_args

from parties.commands.console import terminal_of_command

# Enough for the noise of a column to be corrected, for all loops and their types.
N_ROWS = 1_000


def fit_small_models() -> None:
    """Compile the loops of drawing, training, prediction and reasons, and keep them in the cache beside the modules.

    Small models of random numbers, and two trees of every objective, go through the same loops as a run's; what comes
    out is thrown away.
    """
    import numpy as np

    from opboost.sklearn.dp_boosting import DPBoostingClassifier
    from opboost.sklearn.dpboost import DPBoostClassifier
    from opboost.sklearn.sgbdt import SGBDTClassifier
    from opboost.sklearn.vertical import OpBoostClassifier, OpBoostRegressor
    from opboost.trees.losses import Objective, loss_by_name
    from parties.jobs.warm_up import warm_training

    draw = np.random.default_rng(0)
    X = draw.random((N_ROWS, 4))
    y = (X[:, 0] + draw.random(N_ROWS) > 1).astype(float)
    joint: dict[str, Any] = {"passive_columns": [0, 1], "bounds": {0: (0, 1), 1: (0, 1)}, "random_state": 0}
    few: dict[str, Any] = {"n_estimators": 3, **joint}
    rows: dict[str, Any] = {"bounds": (0, 1), "epsilon": 1.0, "random_state": 0}
    for model, labels in (
        (OpBoostClassifier(**few), y),
        (OpBoostClassifier(answers="cells", mechanism="adj", **few), y),
        (OpBoostClassifier(mechanism="local", epsilon=0.1, **few), y),
        (OpBoostClassifier(**few), np.arange(N_ROWS) % 3),
        (OpBoostRegressor(**few), X[:, 0]),
        # More bins than a byte holds, as 256 and one of empty cells.
        (OpBoostRegressor(max_bin=N_ROWS, domain_size=N_ROWS, **few), X[:, 0]),
        (SGBDTClassifier(**rows), y),
        (DPBoostingClassifier(**rows, delta=1e-3), y),
        (DPBoostingClassifier(**rows, delta=0.0), y),
        (DPBoostClassifier(bounds=(0, 1), n_estimators=3, random_state=0), y),
    ):
        model.fit(X, labels).predict(X)
    OpBoostClassifier(n_estimators=3).fit(X, y).contributions(X)
    for objective in get_args(Objective):
        warm_training(loss_by_name(objective, n_classes=3))


def compile_loops() -> None:
    """Compile in advance what the first run would compile, in one or two minutes, so that every run starts at once."""
    with terminal_of_command() as terminal:
        terminal.say("compiling the loops of drawing, training, prediction and reasons; later calls take seconds")
        fit_small_models()
