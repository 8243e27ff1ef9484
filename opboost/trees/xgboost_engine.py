"""XGBoost as training engine: the same bins, parameters and kind of result as `boosting.boost`."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from opboost.arrays import HistogramAxes, Values
from opboost.errors import ParameterError
from opboost.trees.alternating import Alternates
from opboost.trees.binning import BinnedTable
from opboost.trees.boosting import BoostingParameters, OnRound, RoundReport
from opboost.trees.constraints import ColumnConstraints, Constraints
from opboost.trees.holder import repeated, starting_scores
from opboost.trees.kernels.threads import n_threads, threads_of
from opboost.trees.losses import Custom, LambdaRank, Loss, Ordinal, Softmax
from opboost.trees.losses.ranking import Groups
from opboost.trees.rows import add_tree
from opboost.trees.tree import Tree
from opboost.trees.validation import HeldOutRows, History, Metric
from opboost.trees.xgboost_trees import trees_of_booster

if TYPE_CHECKING:
    import xgboost

_VALIDATION = "validation"

_OF_DART = ("booster", "rate_drop", "skip_drop", "one_drop", "sample_type", "normalize_type")

# Versions of the rows in one matrix, at most.
MOST_STACKED = 4


def boost_with_xgboost(
    table: BinnedTable,
    labels: Values,
    weights: Values,
    parameters: BoostingParameters,
    *,
    loss: Loss,
    base_scores: Values,
    constraints: Constraints,
    held_out: HeldOutRows | None = None,
    alternates: Alternates | None = None,
    margins: Values | float = 0.0,
    earlier: Sequence[Tree] = (),
    seed: int | None,
    on_round: OnRound,
) -> tuple[list[Tree], History]:
    """Train trees with XGBoost on a binned table.

    Parameters
    ----------
    table : BinnedTable
    labels, weights : ndarray of float64, shape (n_rows,)
    parameters : BoostingParameters
    loss : Loss
    base_scores : ndarray of float64, shape (n_outputs,)
    constraints : Constraints
    held_out : HeldOutRows, optional
        Validation rows, and how predictions for them are scored: XGBoost counts trees whole.
    alternates : Alternates, optional
        Versions of some columns. XGBoost grows trees on one matrix, so the first `MOST_STACKED` turns are stacked in
        it, each row with its share of the weight.
    margins, earlier
        As for `boost_table`. XGBoost starts at the scores of the earlier trees.
    seed : int, optional
        For sampling.
    on_round : callable
        Takes a RoundReport; training ends if it returns True.

    Returns
    -------
    trees : list of Tree
        In bins, as `boosting.boost` gives them.
    history : History
    """
    xgboost = load_xgboost(parameters.device)
    if alternates is not None:
        table, labels, weights = _stacked(table, labels, weights, alternates)
    rows = _Rows.of(table, labels, weights, _starts(table, base_scores, margins, earlier), loss)
    matrix, evals, followed = rows.matrix(xgboost, loss), [], rows
    metrics = held_out.metrics if held_out else ()
    if held_out is not None:
        truth = _repeated(held_out.labels, held_out.table.n_rows // len(held_out.labels))
        start = _starts(held_out.table, base_scores, held_out.margins, earlier)
        followed = _Rows.of(held_out.table, truth, np.ones(len(truth)), start, loss)
        evals = [(followed.matrix(xgboost, loss, like=matrix), _VALIDATION)]
    watch = _watch(xgboost, on_round, parameters, metrics)
    booster = xgboost.train(
        {
            **training_settings(parameters, constraints, loss, seed),
            "max_bin": _max_bin(table.axes),
            "nthread": threads_of(table.bins.size),
            # The margins stand for it; of one class alone XGBoost would estimate what it then refuses.
            "base_score": 0.5,
        },
        matrix,
        num_boost_round=parameters.n_estimators,
        evals=evals,
        obj=_objective(loss, labels, weights),
        custom_metric=(lambda predicted, _: _scored(metrics, followed.labels, predicted)) if held_out else None,
        maximize=metrics[-1].is_higher_better if metrics else None,
        early_stopping_rounds=parameters.early_stopping_rounds,
        callbacks=[watch],
        verbose_eval=False,
    )
    trees = trees_of_booster(watch.best or booster.save_raw("json"), table)
    if parameters.early_stopping_rounds is not None:
        trees = trees[: watch.history.best_round * loss.n_outputs]
    return [*earlier, *trees], watch.history


def check_settings_of_xgboost(parameters: BoostingParameters, loss: Loss) -> None:
    """Refuse settings that XGBoost does not take: it is asked for no round."""
    xgboost = load_xgboost(parameters.device)
    if isinstance(loss, Ordinal):
        raise ParameterError(f"XGBoost has no objective {loss.name}; leave `engine` out to have it")
    limits = ColumnConstraints().on([], are_categorical=[], max_delta_step=parameters.delta_step_of(loss))
    settings = training_settings(parameters, limits, loss, None) | {"nthread": 1}
    try:
        xgboost.train(settings, xgboost.DMatrix(np.zeros((1, 1)), np.ones(1)), num_boost_round=0)
    except xgboost.core.XGBoostError as error:
        raise ParameterError(f"XGBoost refuses a setting: {str(error).splitlines()[0]}. Nothing was trained") from None


def load_xgboost(device: str) -> Any:
    """XGBoost, fit for a device.

    Raises
    ------
    ParameterError
        Naming what is missing.
    """
    try:
        import xgboost
    except ImportError:
        raise ParameterError(
            "engine: xgboost needs XGBoost, which is not installed; `pip install 'opboost[xgboost]'` installs it"
        ) from None
    if device == "cuda":
        if not xgboost.build_info().get("USE_CUDA"):
            raise ParameterError(
                "device: cuda needs an XGBoost that was built with CUDA, and this one was not: install `xgboost` in "
                "place of `xgboost-cpu`. Nothing was trained"
            )
        if not has_cuda_device():
            raise ParameterError("device: cuda needs an NVIDIA GPU and its driver; found none. Nothing was trained")
    return xgboost


def has_cuda_device() -> bool:
    """True if the NVIDIA driver is installed and finds a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return not driver.cuInit(0) and not driver.cuDeviceGetCount(ctypes.byref(count)) and count.value > 0


def _stacked(
    table: BinnedTable, labels: Values, weights: Values, alternates: Alternates
) -> tuple[BinnedTable, Values, Values]:
    """The rows once per version that the first turns look at."""
    turns = alternates.turns[:MOST_STACKED]
    bins: Any = np.tile(table.bins, (1, len(turns)))
    versions = np.swapaxes(alternates.versions[list(turns)], 0, 1)
    bins[alternates.columns] = versions.reshape(len(alternates.columns), -1)
    return replace(table, bins=bins), _repeated(labels, len(turns)), _repeated(weights / len(turns), len(turns))


def _repeated(rows: Values, n_times: int) -> Values:
    """Labels or weights of rows that there are so many times, one version after the other."""
    return np.concatenate([rows] * n_times)


class _Rows(NamedTuple):
    """Rows in the order in which XGBoost takes them: group by group where they are ranked."""

    table: BinnedTable
    labels: Values
    weights: Values
    starts: Values

    @classmethod
    def of(cls, table: BinnedTable, labels: Values, weights: Values, starts: Values, loss: Loss) -> _Rows:
        if not isinstance(loss, LambdaRank):
            return cls(table, labels, weights, starts)
        order = Groups.of(labels[:, 1]).rows
        return cls(replace(table, bins=table.bins[:, order]), labels[order], weights[order], starts[:, order])

    def matrix(
        self, library: Any, loss: Loss, *, like: xgboost.QuantileDMatrix | None = None
    ) -> xgboost.QuantileDMatrix:
        """The bins as numbers, missing ones as NaN; quantised as another matrix is."""
        bins, axes = self.table.bins.T, self.table.axes
        rows = bins.astype(np.float32)
        rows[axes.sizes - 1 == bins] = np.nan
        return library.QuantileDMatrix(
            rows,
            **loss.labels_of_xgboost(self.labels),
            weight=loss.weights_of_xgboost(self.labels, self.weights),
            base_margin=self.starts.T if len(self.starts) > 1 else self.starts[0],
            feature_types=["c" if is_categorical else "q" for is_categorical in axes.is_categorical],
            enable_categorical=True,
            max_bin=_max_bin(axes),
            ref=like,
            nthread=threads_of(bins.size),
        )


def _starts(table: BinnedTable, base_scores: Values, margins: Values | float, earlier: Sequence[Tree]) -> Values:
    """Scores at the start, shape ``(n_outputs, n_rows)``; of several versions of the rows, of each."""
    starts = repeated(starting_scores(table, base_scores, margins), table.n_rows, np.float64)
    for i, tree in enumerate(earlier):
        add_tree(starts[i % len(base_scores)], table.bins, table.axes, tree)
    return np.asarray(starts, np.float64)


def _max_bin(axes: HistogramAxes) -> int:
    return max(axes.largest, 2)


def training_settings(
    parameters: BoostingParameters, constraints: Constraints, loss: Loss, seed: int | None
) -> dict[str, Any]:
    """XGBoost's names and values for what trees are to be grown by; the bins are the caller's."""
    settings = {
        **({} if isinstance(loss, Custom) else {"objective": loss.name}),
        **loss.settings,
        "tree_method": "hist",
        "seed": 0 if seed is None else seed,
        "eta": parameters.learning_rate,
        "max_depth": parameters.max_depth,
        "max_leaves": parameters.max_leaves,
        "grow_policy": "lossguide" if parameters.max_leaves else "depthwise",
        "lambda": parameters.reg_lambda,
        "alpha": parameters.reg_alpha,
        "gamma": parameters.gamma,
        "min_child_weight": parameters.min_child_weight,
        "max_delta_step": min(filter(None, (constraints.max_delta_step, loss.longest_step)), default=0.0),
        "subsample": parameters.subsample,
        "colsample_bytree": parameters.colsample_bytree,
        "colsample_bylevel": parameters.colsample_bylevel,
        "colsample_bynode": parameters.colsample_bynode,
        **({"device": parameters.device} if parameters.device != "cpu" else {}),
        **({key: getattr(parameters, key) for key in _OF_DART} if parameters.booster == "dart" else {}),
        "max_cat_to_onehot": parameters.max_cat_to_onehot + 1,
        "disable_default_eval_metric": True,
        "nthread": n_threads(),
    }
    if isinstance(loss, Softmax):
        settings["num_class"] = loss.n_outputs
    if constraints.monotone.any():
        settings["monotone_constraints"] = tuple(constraints.monotone.tolist())
    if len(constraints.groups):
        settings["interaction_constraints"] = json.dumps(
            [np.flatnonzero(group).tolist() for group in constraints.groups]
        )
    return settings


def _watch(library: Any, on_round: OnRound, parameters: BoostingParameters, metrics: Sequence[Metric]) -> Any:
    """XGBoost's form of a callback, which notes the history, and the booster of the best round where it is to stop."""
    changes_trees = parameters.booster == "dart" and parameters.early_stopping_rounds is not None

    class Watch(library.callback.TrainingCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.history = History()
            self.best: bytearray | None = None

        def after_iteration(self, model: Any, epoch: int, evals_log: dict[str, dict[str, list[float]]]) -> bool:
            scores = {name: by_round[-1] for name, by_round in evals_log.get(_VALIDATION, {}).items()}
            if scores:
                self.history.add(scores, metrics[-1])
                # Later rounds change the weights of the trees that they leave out.
                if changes_trees and self.history.best_round == epoch + 1:
                    self.best = model.save_raw("json")
            return bool(on_round(RoundReport(epoch + 1, parameters.n_estimators, scores)))

    return Watch()


def _objective(loss: Loss, labels: Values, weights: Values) -> Any:
    """XGBoost's form of an objective that the caller computes; None for its own ones."""
    if not isinstance(loss, Custom):
        return None
    return lambda scores, _: [weights * each for each in loss.pairs(labels, scores.astype(np.float64))]


def _scored(metrics: tuple[Metric, ...], labels: Values, predicted: Values) -> list[tuple[str, float]]:
    """The metrics of XGBoost's predictions."""
    return [(metric.name, metric.score(labels, predicted.astype(np.float64))) for metric in metrics]
