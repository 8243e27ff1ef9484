"""Multi-output loss: several labels of a record, each with trees of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from opboost.arrays import Scores, Values
from opboost.errors import DataError, ParameterError
from opboost.trees.losses.loss import Loss

# Labels of a record, at most.
MOST_LABELS = 1000


def of_labels(loss: Loss, n_labels: int) -> Loss:
    """The loss of so many label columns: `Several`, or the loss itself where two belong together."""
    return loss if n_labels == 1 or (loss.takes_pairs and n_labels == 2) else Several(loss, n_labels)


@dataclass(frozen=True, slots=True)
class Several(Loss):
    """The same loss of several labels, shape ``(n_rows, n_labels)``, one tree per label and round.

    Attributes
    ----------
    loss : Loss
        Of one raw score.
    n_labels : int
    """

    predicts_labels: ClassVar[bool] = False
    loss: Loss
    n_labels: int

    def __post_init__(self) -> None:
        if not 2 <= self.n_labels <= MOST_LABELS or self.loss.n_outputs != 1:
            raise ParameterError(
                f"2 to {MOST_LABELS} labels go with an objective of one score; got {self.n_labels} and {self.loss.name}"
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.loss.name

    @property
    def n_outputs(self) -> int:
        return self.n_labels

    @property
    def singles(self) -> tuple[Loss, ...]:
        return (self.loss,) * self.n_labels

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.loss.settings, "n_labels": self.n_labels}

    def check_labels(self, labels: Values) -> None:
        if labels.shape[1:] != (self.n_labels,):
            raise DataError(f"{self.name} of {self.n_labels} labels got labels of shape {labels.shape}")
        self.loss.check_labels(labels)

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        return np.concatenate([self.loss.initial_scores(one, weights) for one in labels.T])

    def score_of(self, base_score: float) -> float:
        return self.loss.score_of(base_score)

    def predictions(self, scores: Scores) -> Values:
        return np.column_stack([self.loss.predictions(one[:, None]) for one in scores.T])
