"""Result of a tuning: the best trial against the run's own parameters, and which of the two to train with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FREE = (
    "Tuning reads ranks that were released before: whatever is computed of a release has its guarantee "
    "(post-processing), so it enters no line into any ledger, and nobody is asked"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """Result of a tuning.

    Attributes
    ----------
    metric : str
    is_higher_better : bool
    parameters : dict of str to float
        The best trial's, with the rounds that they took.
    own_parameters : dict of str to plain values
        What the run file's `model` section says.
    scores : tuple of float or None
        Of the trials on the records that they are compared on; None for one that was pruned.
    own, best : float
        Scores of the run's own parameters and of the best trial's on records that no trial has seen.
    ledger_lines : int
        0, for the reason that `words` tell.
    """

    metric: str
    is_higher_better: bool
    parameters: dict[str, Any]
    own_parameters: dict[str, Any]
    scores: tuple[float | None, ...]
    own: float
    best: float
    ledger_lines: int = 0
    words: str = FREE

    @property
    def gain(self) -> float:
        """How much better the best trial's parameters score than the run's own; negative if worse."""
        return (self.best - self.own) * (1 if self.is_higher_better else -1)

    @property
    def to_train_with(self) -> dict[str, Any]:
        """The best trial's parameters if they score better than the run's own, which are kept otherwise."""
        return self.parameters if self.gain > 0 else self.own_parameters

    @property
    def advice(self) -> str:
        """Which parameters to train with, and why."""
        if self.gain > 0:
            return "train with the parameters of the best trial: they score better on records that no trial has seen"
        return (
            "keep the run's own parameters, those of `model` in its run file: on records that no trial has seen, the "
            "best trial's do not score better"
        )
