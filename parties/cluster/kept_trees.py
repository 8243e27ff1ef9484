"""Kept trees: those that training on a cluster has finished, from which another process goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from parties.storage.atomic_files import read_digested, write_digested


@dataclass(slots=True)
class KeptTrees:
    """XGBoost's model of the finished trees, in a file with its digest, or in memory alone.

    Attributes
    ----------
    path : Path or None
    """

    path: Path | None
    _booster: Any = None

    def load(self) -> Any:
        """XGBoost's model of the finished trees; None if there is none, or the file is damaged."""
        if self._booster is None and self.path is not None and self.path.exists():
            content = read_digested(self.path)
            if content is not None:
                from xgboost import Booster

                self._booster = Booster(model_file=bytearray(content))
        return self._booster

    def grown(
        self,
        rounds: Callable[[int], int],
        settings: Mapping[str, Any],
        train: Callable[[dict[str, Any], int, Any], Any],
    ) -> Any:
        """Grow trees after those that were kept, and keep every part.

        Parameters
        ----------
        rounds : callable
            How many rounds are grown next after so many; 0 if that is all.
        settings : mapping
            XGBoost's parameters.
        train : callable
            From a part's parameters, its rounds and the model so far to the model with them.
        """
        booster = self.load()
        while n_more := rounds(n_done := 0 if booster is None else booster.num_boosted_rounds()):
            # Sampling begins anew with every part, which must not draw the same rows and columns.
            booster = train({**settings, "seed": settings["seed"] + n_done}, n_more, booster)
            self.save(booster)
        return booster

    def save(self, booster: Any) -> None:
        """Keep the trees so far."""
        self._booster = booster
        if self.path is not None:
            write_digested(self.path, bytes(booster.save_raw("ubj")), writer=f".{uuid4().hex}")
