"""Reason codes, by exact contributions, and explanations in the words of the passive party whose columns they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from opboost.arrays import Values
from opboost.desensitize import ColumnMechanism
from opboost.routing import Router
from opboost.schema import Kind
from opboost.table_format.times import time_in_words
from opboost.trees.tree import Ensemble
from parties.config.score_policy import RevealSection
from parties.errors import ConfigError
from parties.vertical.release_offer import rank_names


def check_reasons(ensemble: Ensemble, reveal: RevealSection) -> None:
    """Refuse reasons for a model with several scores, or beside coarsened scores.

    Raises
    ------
    ConfigError
    """
    if ensemble.loss.n_outputs > 1:
        raise ConfigError(
            f"--reasons needs one score per record, but the model has {ensemble.loss.n_outputs}. Nothing was sent"
        )
    if reveal.words() is not None:
        raise ConfigError("--reasons tell more of a score than `reveal` lets out: leave one out. Nothing was sent")


def predicted_and_explained(ensemble: Ensemble, features: Values) -> Values:
    """Predictions and, behind them, the contributions of all columns, shape ``(n_rows, n_columns + 1)``."""
    return np.column_stack([ensemble.predict(features), ensemble.contributions(features)[:, 0, :-1]])


def reason_table(ensemble: Ensemble, contributions: Values, n_reasons: int) -> pd.DataFrame:
    """Names of the columns whose contributions to the raw score are positive, the largest first, `n_reasons` at most.

    A passive party's column has its party's name before the name that the party gave it. Cells without a reason are
    empty.
    """
    columns = ensemble.columns
    names = [column.name if column.owner is None else f"{column.owner}: {column.name}" for column in columns]
    order = np.argsort(-contributions, axis=1, kind="stable")[:, :n_reasons]
    chosen = np.array(names, dtype=object)[order]
    chosen[~(np.take_along_axis(contributions, order, axis=1) > 0)] = None
    return pd.DataFrame(chosen, columns=[f"reason_{k + 1}" for k in range(chosen.shape[1])])


@dataclass(frozen=True, slots=True)
class OwnWords:
    """Translates explanations into a passive party's own column names and units.

    Attributes
    ----------
    party : str
    router : Router
        Its share of the model.
    opaque_names : bool
        Whether it offered its columns under numbers.
    """

    party: str
    router: Router
    opaque_names: bool

    @property
    def columns(self) -> dict[str, tuple[str, ColumnMechanism]]:
        """Name and mechanism of each released column, by the name that it was offered under."""
        own = [(name, mechanism) for mechanism in self.router.mechanisms for name in rank_names(mechanism.schema)]
        return {f"c{i}" if self.opaque_names else name: (name, mechanism) for i, (name, mechanism) in enumerate(own)}

    def reasons(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table of predictions with the party's own column names in its reasons."""
        names = {f"{self.party}: {offered}": name for offered, (name, _) in self.columns.items()}
        return table.assign(**{of: table[of].replace(names) for of in table.columns if of.startswith("reason_")})

    def dependence(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """A column's partial dependence; one of the party's columns gets its own name and thresholds.

        Raises
        ------
        ConfigError
            If the explanation is of another model.
        """
        if told.get("owner") != self.party:
            return dict(told)
        tests = self.router.tests
        try:
            name, mechanism = self.columns[told["column"]]
            if "ranks" in told:
                asked = [tests.thresholds[range(tests.n_tests)[test]] for test in told["tests"]]
            else:
                sources = zip(tests.sources, tests.thresholds.tolist(), strict=True)
                asked = [cut for (source, _), cut in sources if source == mechanism.schema.name and np.isfinite(cut)]
        except (KeyError, IndexError, TypeError):
            raise ConfigError("the explanation is of another model than this run's. Nothing was written") from None
        thresholds = [_in_own_unit(mechanism, cut) for cut in asked]
        return with_times({**told, "column": name, "thresholds": thresholds}, self.router.unit_s(name))


def with_times(told: dict[str, Any], unit_s: int | None) -> dict[str, Any]:
    """A column's partial dependence; a column of times also gets its thresholds as dates or times."""
    if unit_s is None or "thresholds" not in told:
        return told
    times = [None if threshold is None else time_in_words(threshold, unit_s) for threshold in told["thresholds"]]
    return {**told, "times": times}


def _in_own_unit(mechanism: ColumnMechanism, cut: float) -> float | str | None:
    """A threshold on codes in the column's own unit; None if it asks whether there is a value, or for one category."""
    schema, steps = mechanism.schema, cut - mechanism.settings.domain.lo
    if schema.kind is Kind.UNORDERED or not np.isfinite(cut):
        return None
    if schema.kind is Kind.ORDERED:
        return schema.categories[int(np.clip(steps, 0, len(schema.categories) - 1))]
    return float(schema.bounds[0] + steps * mechanism.point)
