"""Charge of a horizontal run to each of a worker's records, and the budget of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parties.errors import OverBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCharge:
    """What a run promises, who asks, and the run that it goes on from, if any: then the promise is for both.

    That run is known by its name and by the holder of its charge: another one of the name may be on other records.
    """

    run: str
    coordinator: str
    epsilon: float
    delta: float
    continues: str = ""
    continued_holder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudget:
    """The most that all runs may cost together; None for no limit."""

    epsilon: float | None = None
    delta: float | None = None

    def check(self, path: Path, spent: tuple[float, float], added: tuple[float, float]) -> None:
        """Refuse a run that would go over it: it adds so much to the epsilon and the delta that were spent.

        Raises
        ------
        OverBudget
        """
        for name, limit, before, more in (
            ("epsilon", self.epsilon, spent[0], added[0]),
            ("delta", self.delta, spent[1], added[1]),
        ):
            if limit is not None and not before + more <= limit * (1 + 1e-12):
                raise OverBudget(
                    f"{path}: {name} {before:.6g} was spent and this run costs {more:.6g}, which is over the "
                    f"budget of {limit:.6g}. Nothing was sent"
                )
