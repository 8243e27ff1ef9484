"""scikit-learn estimators: all parties simulated in one process, running the parties' own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from opboost import rng
from opboost.arrays import Values
from opboost.desensitize import ColumnMechanism, MechanismSettings
from opboost.errors import DataError, OpBoostError, ParameterError, SchemaError
from opboost.privacy.guarantee import Guarantee, nothing_released
from opboost.schema import ColumnSchema, Missing
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError
from opboost.vertical import OwnColumn
from parties.party_a import ActiveJob, JointModel, predict_jointly, predict_locally, train_jointly
from parties.party_b import PassiveJob, PassiveShare, serve, train
from parties.simulation import simulate
from protocols.channel import Channel

# Budget per unit of the mapped domain when the user names passive columns but no epsilon.
DEFAULT_EPSILON = 0.1

Column = int | str
Bounds = Mapping[Column, tuple[float, float]] | tuple[ArrayLike, ArrayLike] | None

_ACTIVE, _PASSIVE = "active", "passive"


class _OpBoost(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: the split of the columns, the simulated runs, the parameters."""

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        mechanism: Literal["global", "local", "adj"] = "global",
        law: str = "clamped",
        theta: int | None = None,
        alpha: float = 1.0,
        domain_size: int = 1000,
        category_epsilon: float | None = None,
        passive_columns: Sequence[Column] | None = None,
        bounds: Bounds = None,
        missing: Literal["refuse", "category"] = "refuse",
        prediction: Literal["local", "desensitized", "routed"] = "routed",
        n_estimators: int = 100,
        max_depth: int = 6,
        learning_rate: float = 0.3,
        reg_lambda: float = 1.0,
        gamma: float = 0.0,
        min_child_weight: float = 1.0,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        max_bin: int = 256,
        base_score: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.mechanism = mechanism
        self.law = law
        self.theta = theta
        self.alpha = alpha
        self.domain_size = domain_size
        self.category_epsilon = category_epsilon
        self.passive_columns = passive_columns
        self.bounds = bounds
        self.missing = missing
        self.prediction = prediction
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.reg_lambda = reg_lambda
        self.gamma = gamma
        self.min_child_weight = min_child_weight
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.max_bin = max_bin
        self.base_score = base_score
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        is_plain = self.bounds is None and self.passive_columns is None
        tags.input_tags.allow_nan = is_plain or self.missing == "category"
        return tags

    @property
    def guarantee_(self) -> Guarantee:
        """What the fit promises about the passive party's columns."""
        check_is_fitted(self, "model_")
        return self.model_.guarantees.get(_PASSIVE, nothing_released())

    def _fit(self, X: Values, labels: Values, weights: Values, loss: Loss) -> None:
        if self.prediction not in ("local", "desensitized", "routed"):
            raise ParameterError(f"prediction must be local, desensitized or routed; got {self.prediction!r}")
        if self.missing not in ("refuse", "category"):
            raise ParameterError(f"missing must be refuse or category; got {self.missing!r}")
        parameters = BoostingParameters(
            n_estimators=self.n_estimators,
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            reg_lambda=self.reg_lambda,
            gamma=self.gamma,
            min_child_weight=self.min_child_weight,
            subsample=self.subsample,
            colsample_bytree=self.colsample_bytree,
            max_bin=self.max_bin,
            base_score=self.base_score,
        )
        self._names = self._column_names()
        self._mechanisms = self._plan(X)
        seed = self._seed()
        is_used = weights > 0
        if not is_used.any():
            raise DataError("all sample weights are zero; there is nothing to learn from")
        X, labels, weights = X[is_used], labels[is_used], weights[is_used]
        table = pd.DataFrame(X, columns=list(self._names))
        active = ActiveJob(
            party=_ACTIVE,
            run_id="fit",
            id_digest="",
            own=tuple(OwnColumn(name, values) for name, values in self._own(X).items()),
            labels=labels,
            weights=weights,
            loss=loss,
            parameters=parameters,
            seed=seed,
            column_order=self._names,
        )
        passive = PassiveJob(
            party=_PASSIVE,
            run_id="fit",
            id_digest="",
            features=table[[mechanism.schema.name for mechanism in self._mechanisms]],
            mechanisms=self._mechanisms,
            rng=self._bits(seed),
            opaque_names=False,
            share_thresholds=self.prediction == "local",
        )
        shares: list[PassiveShare] = []
        self.model_: JointModel = self._run(
            lambda channels: train_jointly(active, channels), lambda channel: shares.append(train(passive, channel))
        )
        self._share = shares[0] if shares else None
        self._prediction_seed = seed

    def _predict(self, X: Values) -> Values:
        own, table = self._own(X), pd.DataFrame(X, columns=list(self._names))
        self._refuse_missing(table[[mechanism.schema.name for mechanism in self._mechanisms]].to_numpy())
        if self.prediction == "local":
            return predict_locally(self.model_, own, table)
        ids = pd.Index([str(row) for row in range(len(X))], dtype=object)
        share, bits = self._share, self._bits(self._prediction_seed)
        predictions, _ = self._run(
            lambda channels: predict_jointly(
                self.model_, ids, own, channels,
                party=_ACTIVE, run_id="fit", desensitized=self.prediction == "desensitized",
            ),
            lambda channel: share and serve(
                share.router, ids, table, channel, party=_PASSIVE, run_id="fit", rng=bits, may_route=True
            ),
        )  # fmt: skip
        return predictions

    def _run(self, active: Callable[[Sequence[Channel]], Any], passive: Callable[[Channel], object]) -> Any:
        return simulate(active, {_PASSIVE: passive} if self._mechanisms else {}, name=_ACTIVE)

    def _own(self, X: Values) -> dict[str, Values]:
        passive = {mechanism.schema.name for mechanism in self._mechanisms}
        return {name: X[:, i] for i, name in enumerate(self._names) if name not in passive}

    def _column_names(self) -> tuple[str, ...]:
        if hasattr(self, "feature_names_in_"):
            return tuple(map(str, self.feature_names_in_))
        return tuple(f"x{i}" for i in range(self.n_features_in_))

    def _plan(self, X: Values) -> tuple[ColumnMechanism, ...]:
        """A mechanism for every passive column, in the order of the columns."""
        bounds = self._bounds_by_column()
        if self.passive_columns is None:
            passive = sorted(bounds)
        else:
            passive = sorted({self._position(column) for column in self.passive_columns})
        if not passive:
            if self.epsilon is not None:
                raise SchemaError(
                    "epsilon is given, but neither passive_columns nor bounds say which columns to protect. "
                    "Nothing was released"
                )
            return ()
        settings = MechanismSettings(
            mechanism=self.mechanism,
            epsilon=DEFAULT_EPSILON if self.epsilon is None else self.epsilon,
            law=self.law,  # type: ignore[arg-type]
            theta=self.theta,
            alpha=self.alpha,
            domain_size=self.domain_size,
            category_epsilon=self.category_epsilon,
        )
        without = [self._names[i] for i in passive if i not in bounds]
        if without:
            raise SchemaError(
                f"passive columns need public bounds, and these have none: {', '.join(without)}. Give them as "
                "`bounds`; taken from the data they would reveal its extremes. Nothing was released"
            )
        self._refuse_missing(X[:, passive])
        return tuple(
            ColumnMechanism(
                ColumnSchema(
                    name=self._names[i], lower=bounds[i][0], upper=bounds[i][1], missing=Missing(self.missing)
                ),
                settings,
            )
            for i in passive
        )

    def _refuse_missing(self, passive: Values) -> None:
        n_missing = int(np.isnan(passive).sum())
        if n_missing and self.missing == "refuse":
            raise DataError(
                f"the passive columns have {n_missing} missing cells (NaN); say missing='category' to have missingness "
                "randomised like a category. Nothing was released"
            )

    def _bounds_by_column(self) -> dict[int, tuple[float, float]]:
        if self.bounds is None:
            return {}
        try:
            if isinstance(self.bounds, Mapping):
                return {self._position(column): (float(low), float(up)) for column, (low, up) in self.bounds.items()}
            lower, upper = (np.broadcast_to(np.asarray(b, np.float64), self.n_features_in_) for b in self.bounds)
        except OpBoostError:
            raise
        except (TypeError, ValueError):
            raise ParameterError(
                "bounds must map columns to (lower, upper) or be a pair of numbers or arrays, one entry per column"
            ) from None
        return {i: (float(lower[i]), float(upper[i])) for i in range(self.n_features_in_)}

    def _position(self, column: Column) -> int:
        if isinstance(column, (int, np.integer)) and not isinstance(column, bool):
            if -self.n_features_in_ <= column < self.n_features_in_:
                return int(column) % self.n_features_in_
        elif column in self._names:
            return self._names.index(column)
        raise ParameterError(f"column {column!r} does not exist; there are {', '.join(self._names)}")

    def _seed(self) -> int | None:
        """One number from `random_state`, or None for bits from the operating system."""
        if self.random_state is None:
            return None
        if isinstance(self.random_state, (int, np.integer)) and self.random_state >= 0:
            return int(self.random_state)
        if not isinstance(self.random_state, np.random.RandomState):
            raise ParameterError(
                f"random_state must be None, an integer of at least 0 or a RandomState; got {self.random_state!r}"
            )
        return int(self.random_state.randint(np.iinfo(np.int32).max))

    def _bits(self, seed: int | None) -> rng.BitSource:
        return rng.secure() if seed is None else rng.seeded(seed)


_PARAMETERS = """
    Parameters
    ----------
    epsilon : float, optional
        Budget per unit of the mapped domain; ``inf`` for no noise. By default 0.1 if there are passive columns.
    mechanism : {"global", "local", "adj"}
        Order-preserving map.
    law : {"clamped", "exponential", "calibrated", "bounded_laplace"}
        Law of the noise.
    theta : int, optional
        Width of the cells of ``local`` and ``adj``; by default a tenth of the domain.
    alpha : float
        Share of the budget between cells, for ``adj``.
    domain_size : int
        Passive columns are mapped to ``1 .. domain_size``.
    category_epsilon : float, optional
        Budget of the randomised response on missingness; by default 3, or `epsilon` if that is larger.
    passive_columns : sequence of int or str, optional
        Columns that the passive party holds. By default those that `bounds` names; without bounds, none, and the
        model is plain boosting on one party's columns.
    bounds : mapping of column to (lower, upper), or pair of numbers or arrays
        Public bounds of the passive columns. There is no default: bounds taken from data reveal its extremes.
    missing : {"refuse", "category"}
        What an empty cell of a passive column means.
    prediction : {"routed", "desensitized", "local"}
        How new records are scored: by exact routing bits of the passive party, by its desensitized values, or by
        the active party alone with shared thresholds.
    n_estimators, max_depth, learning_rate, reg_lambda, gamma, min_child_weight, subsample, colsample_bytree, \
max_bin, base_score
        As in XGBoost.
    random_state : int, RandomState or None
        None draws secure bits. A seed makes the noise repeatable, and `guarantee_` then says "not for release".

    Attributes
    ----------
    guarantee_ : Guarantee
        What the fit promises about the passive columns.
    model_ : JointModel
        The active party's share of the model.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If the training table had column names.

    Notes
    -----
    Privacy: the passive columns are released once per fit, under `guarantee_`. Labels and the model itself are not
    protected.
"""


class OpBoostClassifier(ClassifierMixin, _OpBoost):  # type: ignore[misc]
    __doc__ = f"""Boosted trees for classes, on own columns and on desensitized ranks of a passive party's columns.
{_PARAMETERS}
    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from opboost import OpBoostClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = OpBoostClassifier(epsilon=1.0, bounds={{0: (5, 30), 1: (5, 40)}}, random_state=0).fit(X, y)
    >>> model.guarantee_.notion
    'dLDP'
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on a table of shape ``(n_rows, n_columns)`` and labels of shape ``(n_rows,)``."""
        matrix, targets = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
        check_classification_targets(targets)
        weights = _check_sample_weight(sample_weight, matrix, dtype=np.float64, ensure_non_negative=True)
        self.classes_, labels = np.unique(targets, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError("a classifier needs at least two classes in the labels; found one class")
        loss: Loss = Logistic() if len(self.classes_) == 2 else Softmax(len(self.classes_))
        self._fit(matrix, labels.astype(np.float64), weights, loss)
        return self

    def predict_proba(self, X: ArrayLike) -> Values:
        """Probabilities of the classes, shape ``(n_rows, n_classes)``."""
        check_is_fitted(self, "model_")
        matrix = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        probabilities = self._predict(matrix)
        if probabilities.ndim == 1:
            return np.column_stack([1 - probabilities, probabilities])
        return probabilities

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of every row, shape ``(n_rows,)``."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])


class OpBoostRegressor(RegressorMixin, _OpBoost):  # type: ignore[misc]
    __doc__ = f"""Boosted trees for numbers, on own columns and on desensitized ranks of a passive party's columns.
{_PARAMETERS}
    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from opboost import OpBoostRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = OpBoostRegressor(passive_columns=[2, 3], bounds=(-0.2, 0.2), n_estimators=20).fit(X, y)
    >>> model.guarantee_.certified
    True
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on a table of shape ``(n_rows, n_columns)`` and labels of shape ``(n_rows,)``."""
        matrix, targets = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", y_numeric=True)
        weights = _check_sample_weight(sample_weight, matrix, dtype=np.float64, ensure_non_negative=True)
        self._fit(matrix, np.asarray(targets, dtype=np.float64), weights, SquaredError())
        return self

    def predict(self, X: ArrayLike) -> Values:
        """Predicted numbers, shape ``(n_rows,)``."""
        check_is_fitted(self, "model_")
        return self._predict(validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False))
