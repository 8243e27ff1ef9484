"""scikit-learn estimators of InPrivate Digging, all owners in one process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin

from opboost.arrays import Values
from opboost.column_positions import ColumnKey
from opboost.errors import DataError, ParameterError, check_choice, check_integer, check_not_negative, check_positive
from opboost.horizontal.inprivate import training as inprivate
from opboost.horizontal.inprivate.settings import ROUND_DOWN, InPrivateSettings
from opboost.horizontal.inprivate.training import Owner, boosted_residuals, run_chain
from opboost.horizontal.noise.initial_score import score_of_owners
from opboost.horizontal.noise.noisy_holder import laplace_noise
from opboost.horizontal.rows.record_holder import squared_gradients
from opboost.horizontal.splits.gridless import GridlessColumns
from opboost.privacy.accounting import by_pure
from opboost.privacy.releases import PureRelease
from opboost.rng import BitSource
from opboost.sklearn.class_labels import CLASSES, ClassLabels, distinct, matched
from opboost.sklearn.simulated_rows import BoundedNumbers, DividedRows, PublicTask, bits_of_models
from opboost.sklearn.whole_fits import whole, with_parameters
from opboost.trees.complete import check_depth

_PARAMETERS = """
    Parameters
    ----------
    epsilon : float, optional
        Budget per record; ``inf`` for no noise. By default 1 if there are bounds; without them nothing is protected.
    delta : float
        Pure differential privacy needs none: 0.
    bounds : mapping of column to (lower, upper), pair of numbers or arrays, or "from_data"
        Public bounds of the columns; values beyond them count as the bounds. ``"from_data"`` reveals the extremes of
        the data and is not certified.
    categorical_features : sequence of int or str, optional
        Columns that hold categories, numbered 0, 1, 2, ...; their public bounds (0, K - 1) say how many there are. A
        split parts one category from all others.
    mode : {"certified", "paper"}
        ``paper`` takes averages of three neighbouring values for candidates and the publication's sensitivity; the
        candidates alone tell values, so nothing is promised then.
    owners : int or sequence
        The owners of the rows, in the order of their turns: how many there are, or their names. The list is public, and
        an owner without rows takes its turns too. `fit` may be told whose each row is, by these names or by numbers
        from 0; otherwise every row draws an owner.
    n_rounds : int
        Turns of every owner.
    least_advance : float, optional
        For the mode ``paper``: end when a round lowers the error on the training rows by less than this (mean absolute
        error on the scale of [-1, 1], or share of wrong classes). Nobody pays for that number, so nothing is promised.
    max_depth : int
        Levels of splits.
    learning_rate, reg_lambda : float
    noise_lambda : float
        A leaf's denominator is at least so many scales of the noise on it.
    max_residual : float, optional
        Bound of residuals. By default 1 for classes, and 0.3 for numbers, whose bounds are scaled to [-1, 1].
    initial_share : float
        Share of epsilon for the first score, of which every owner releases its part before the first turn; 0 to begin
        at 0, as the mode ``paper`` does.
    broadcast : bool
        Whether owners send their trees to all later ones at once; see `communication_`. The model is the same.
    candidates : {"grid", "gridless"}
        Whether splits are chosen among the cuts of a public grid or among 32,768 thresholds per column; the mode
        ``paper`` has candidates of its own.
    max_cells : int
        Cells of the public grid per column.
    random_state : int, RandomState or None
        None draws secure bits. A seed makes the noise repeatable, and `guarantee_` then says "not for release".

    Attributes
    ----------
    guarantee_ : RecordGuarantee
    models_ : tuple of Ensemble
        One, or for more than two classes one per class. They hold no counts, no covers and nothing per record.
    model_ : Ensemble
        The first of them.
    communication_ : tuple of int
        Messages, and how often the chain waits for residuals of a tree, in all rounds.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If the training table had column names.

    Notes
    -----
    Privacy: epsilon-DP between data sets that differ by one record, added or removed, for everybody who sees the trees,
    the other owners too: a record is in one tree of a model at most (`opboost.horizontal.inprivate.training`). Several
    classes share the budget in equal parts, each being a model of its own against the rest; which classes there are is
    public.
"""


@with_parameters
class _InPrivate(DividedRows):
    """Base of the InPrivate estimators."""

    delta: float = 0.0
    categorical_features: Sequence[ColumnKey] | None = None
    owners: int | Sequence[Any] = 5
    n_rounds: int = 1
    least_advance: float | None = None
    max_depth: int = 3
    learning_rate: float = 0.5
    reg_lambda: float = 1.0
    noise_lambda: float = 2.0
    max_residual: float | None = None
    initial_share: float = 0.1
    broadcast: bool = True
    candidates: Literal["grid", "gridless"] = "grid"
    max_cells: int = 32

    @whole
    def fit(self, X: ArrayLike, y: ArrayLike, owners: ArrayLike | None = None) -> Self:
        """Train on a table of shape ``(n_rows, n_columns)``, labels and, if known, each row's owner, ``(n_rows,)``."""
        rows, targets = self._check_rows(X, y, reset=True)
        self._train(rows, self._targets(targets), owners)
        return self

    def _train(self, X: Values, targets: Sequence[Values], owners: ArrayLike | None = None) -> None:
        task = self._public(X, targets[0])
        is_printed = self.mode == "paper" and math.isfinite(task.epsilon)
        settings, bits = self._settings(task, is_printed=is_printed), self._bits()
        if self.mode == "paper":
            task = replace(task, grid=replace(task.grid, given=averages_of_three(X, task)))
        is_gridless = self.candidates == "gridless" and self.mode == "certified"
        columns = GridlessColumns(task.grid.bounds, categorical=task.grid.categorical) if is_gridless else None
        share = 0.0 if self.mode == "paper" else check_not_negative("initial_share", self.initial_share)
        if share >= 1:
            raise ParameterError(f"initial_share must be less than 1; got {share}")
        whole = task.epsilon / len(targets) * ROUND_DOWN
        first, epsilon = share * whole, (1 - share) * whole
        # Trees add up to half of the log odds.
        scale = 2.0 if task.is_classification else 1.0
        task.check_scores(self.n_rounds * len(self._names()), scale * settings.max_value)
        rows_of_owners = self._rows_of_owners(len(X), owners, bits.fork("owners"))
        models, n_turns = [], 0
        for target, source in zip(targets, bits_of_models(bits, len(targets)), strict=True):
            labels, score = task.scaled(target), 0.0
            if share:
                score = score_of_owners(
                    [labels[rows] for rows in rows_of_owners],
                    [source.fork(f"first score of owner {i}") for i in range(len(rows_of_owners))],
                    noise=partial(laplace_noise, 1.0, first),
                    is_classification=task.is_classification,
                )
            chain = [
                Owner(
                    X[rows],
                    labels[rows],
                    columns or task.grid,
                    settings,
                    gradients=boosted_residuals if task.is_classification else squared_gradients,
                    rng=source.fork(f"owner {i}"),
                    initial_score=score / scale,
                )
                for i, rows in enumerate(rows_of_owners)
            ]
            trees = run_chain(chain, n_rounds=self.n_rounds, epsilon=epsilon, least_advance=self.least_advance)
            models.append(task.ensemble(trees, score / scale, score_scale=scale, columns=columns))
            n_turns += len(trees)
        n_rounds = n_turns // len(rows_of_owners)
        messages = inprivate.messages_of_round(len(rows_of_owners), broadcast=self.broadcast)
        self.communication_ = (messages[0] * n_rounds, messages[1] * n_rounds)
        self._keep(task, models)
        is_proven = math.isfinite(task.epsilon) and not is_printed
        spent = inprivate.releases(settings, epsilon) if is_proven else ()
        if is_proven and first:
            spent = (PureRelease(epsilon=first), *spent)
        self.guarantee_ = self._guarantee(
            task,
            epsilon=by_pure(spent * len(targets)) if is_proven else math.inf,
            delta=0.0,
            account="pure composition" if is_proven else "no proof" if is_printed else "no noise",
            is_secure=bits.is_secure,
            claimed=task.epsilon if is_printed else None,
        )

    def _settings(self, task: PublicTask, *, is_printed: bool) -> InPrivateSettings:
        check_integer("n_rounds", self.n_rounds, least=1)
        check_depth(self.max_depth)
        if self.least_advance is not None and self.mode != "paper":
            raise ParameterError(
                "least_advance ends training by an error on private data that nobody pays for; it is for the mode "
                "paper. Nothing was released"
            )
        bound = self.max_residual
        if bound is None:
            bound = 1.0 if task.is_classification or is_printed else 0.3
        check_positive("learning_rate", self.learning_rate)
        check_positive("max_residual", bound)
        check_choice("candidates", self.candidates, "grid", "gridless")
        if self.delta != 0:
            raise ParameterError(f"this model is purely private and needs no delta: 0; got {self.delta!r}")
        return InPrivateSettings(
            n_rounds=self.n_rounds,
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            reg_lambda=self.reg_lambda,
            noise_lambda=self.noise_lambda,
            max_residual=bound,
            utility_range=8.0 if is_printed else None,
        )

    def _names(self) -> Sequence[Any] | NDArray[Any]:
        """The owners, in the order of the chain."""
        if not isinstance(self.owners, (int, np.integer)):
            distinct("owners", self.owners, least=1)
            return np.asarray(self.owners)
        if isinstance(self.owners, bool) or self.owners < 1:
            raise ParameterError(f"owners must be a number of at least 1, or a list of names; got {self.owners!r}")
        return range(self.owners)

    def _rows_of_owners(self, n_rows: int, owners: ArrayLike | None, rng: BitSource) -> list[NDArray[np.int64]]:
        """The rows of each owner, in the order of the chain."""
        names = self._names()
        if owners is None:
            number = (rng.uniforms(n_rows) * len(names)).astype(np.int64)
            return [np.flatnonzero(number == i) for i in range(len(names))]
        given = np.asarray(owners)
        if given.shape != (n_rows,):
            raise DataError(f"owners must name one owner per row ({n_rows}); got shape {given.shape}")
        otherwise = (
            "there are rows of owners that are not listed. List all of them as the parameter `owners`, in the order of "
            "their turns, or say how many there are and number them from 0"
        )
        return [np.flatnonzero(each) for each in matched(given, names, otherwise=otherwise)]


def averages_of_three(X: Values, task: PublicTask) -> tuple[Values, ...]:
    """The publication's candidates, thinned to the cells of the grid: averages of three neighbouring values.

    They are functions of single records, so that a choice among them, however noisy, is not private.
    """
    n_cuts = task.grid.n_cells - 1
    cuts = []
    for column, (lower, upper) in zip(X.T, task.grid.bounds, strict=True):
        values = np.sort(column[np.isfinite(column)])
        means = (values[:-2] + values[1:-1] + values[2:]) / 3 if len(values) > 2 else np.array([(lower + upper) / 2])
        cuts.append(means[np.linspace(0, len(means) - 1, n_cuts).round().astype(np.int64)])
    return tuple(cuts)


@with_parameters
class InPrivateClassifier(ClassLabels, ClassifierMixin, _InPrivate):  # type: ignore[misc]
    __doc__ = f"""Private boosting for two or more classes along a chain of owners (InPrivate Digging).
{CLASSES}{_PARAMETERS}"""


@with_parameters
class InPrivateRegressor(BoundedNumbers, RegressorMixin, _InPrivate):  # type: ignore[misc]
    __doc__ = f"""Private boosting for numbers along a chain of owners (InPrivate Digging).
{_PARAMETERS}"""
