"""Score policy: how coarse the active party's written scores are (best N only, bins, or rounding).

The active party computes the scores and nobody else gets them. What is written with a policy is meant to be passed on;
the exact scores are then in no file. A passive party may demand a policy: the two sides' words for it are compared
before the first request. It cannot see what the active party does with the scores, which that one has in any case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, model_validator

from opboost.arrays import Values
from opboost.trees.losses import Logistic, Loss, Ordinal, Softmax
from parties.config.section import Section
from parties.errors import ConfigError

Edges = Annotated[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], Field(min_length=1, max_length=20)]
ScoreBins = Annotated[int, Field(ge=2, le=100)]

# Beginnings of the names of columns that a table of predictions has one of for each class, quantile or label.
SEVERAL_SCORES = ("probability_", "quantile_", "prediction_")


class RevealSection(Section):
    """The `reveal` section: the part of the scores that is written.

    `top` keeps the records with the highest scores, and their rank. `bins` replaces a score by the interval it lies in:
    a number divides probabilities evenly, a list gives the edges. `round` keeps so many digits behind the point.
    """

    top: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Write the records with the highest scores only, so many."
    )
    bins: ScoreBins | Edges | None = Field(
        None, description="Write intervals: a number divides probabilities evenly, a list gives the edges."
    )
    round: Annotated[int, Field(ge=0, le=12)] | None = Field(None, description="Digits behind the point.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.bins is not None and self.round is not None:
            raise ValueError("give either bins or round")
        if isinstance(self.bins, tuple) and any(low >= high for low, high in pairwise(self.bins)):
            raise ValueError("the edges of bins must be ascending")
        return self

    def words(self) -> str | None:
        """The policy in words, the same for the same policy; None if everything is written."""
        parts = []
        if self.top is not None:
            parts.append(f"top {self.top}")
        if isinstance(self.bins, int):
            parts.append(f"{self.bins} bins")
        elif self.bins is not None:
            parts.append(f"bins at {', '.join(f'{edge!r}' for edge in self.bins)}")
        if self.round is not None:
            parts.append(f"{self.round} digits")
        return "; ".join(parts) or None

    def check(self, loss: Loss) -> None:
        """Refuse a policy that does not fit a model.

        Raises
        ------
        ConfigError
        """
        if self.top is not None and loss.n_outputs > 1:
            raise ConfigError(
                f"reveal.top needs one score per record, but the model has {loss.n_outputs} scores. Nothing was sent"
            )
        if isinstance(self.bins, int) and not isinstance(loss, (Logistic, Ordinal, Softmax)):
            raise ConfigError(
                f"reveal.bins divides probabilities evenly, but the objective is {loss.name}; list the edges of the "
                "bins. Nothing was sent"
            )

    def apply(self, predictions: pd.DataFrame) -> pd.DataFrame:
        """Apply the policy to a table of predictions.

        Parameters
        ----------
        predictions : DataFrame
            With the columns ``id``, ``prediction``, ``status``, and ``probability_k`` for several classes: then these
            are made coarse, and ``prediction`` stays the most probable class; or with ``quantile_alpha`` alone.

        Returns
        -------
        revealed : DataFrame
            With `top`, its rows are in the order of the rank; equal written scores share a rank, and of records with
            equal exact scores those that come first are kept.
        """
        if self.top is not None:
            predictions = predictions[predictions["status"] == "ok"]
            predictions = predictions.nlargest(self.top, "prediction", keep="first")
        exact = {name: predictions[name].to_numpy() for name in predictions.columns if name not in ("id", "status")}
        coarse = self.coarse(exact).items()
        revealed = predictions.assign(
            **{name: pd.Series(values, index=predictions.index, dtype=values.dtype) for name, values in coarse}
        )
        if self.top is None:
            return revealed
        places = self._places(predictions["prediction"].to_numpy(np.float64))
        revealed.insert(revealed.columns.get_loc("prediction"), "rank", _ranks(places))  # type: ignore[arg-type]
        return revealed.sort_values(["rank", "id"], kind="stable", ignore_index=True)

    def coarse(self, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The columns of a table of predictions with coarse scores: the policy but for `top`."""
        scores = [name for name in columns if name.startswith(SEVERAL_SCORES)] or ["prediction"]
        return {name: self._coarse(values) if name in scores else values for name, values in columns.items()}

    def _coarse(self, scores: NDArray[Any]) -> NDArray[Any]:
        values = scores.astype(np.float64)
        if self.bins is None:
            return self._places(values)
        names = self._interval_names()
        is_scored = ~np.isnan(values)
        texts = np.full(len(values), None, dtype=object)
        texts[is_scored] = np.array(names, dtype=object)[self._places(values[is_scored]).astype(np.int64)]
        return texts

    def _places(self, values: Values) -> Values:
        """Coarse scores, as numbers in the same order."""
        if self.bins is not None:
            return np.searchsorted(self._edges(), values, side="right").astype(np.float64)
        return values if self.round is None else np.round(values, self.round)

    def _edges(self) -> Values:
        if isinstance(self.bins, int):
            return np.arange(1, self.bins) / self.bins
        return np.array(self.bins, np.float64)

    def _interval_names(self) -> list[str]:
        """Names of the intervals, each from its lower edge up to, but without, the next."""
        inner = self._edges().tolist()
        first, last = (0.0, 1.0) if isinstance(self.bins, int) else (-math.inf, math.inf)
        return [_interval(low, high) for low, high in pairwise([first, *inner, last])]


def _interval(low: float, high: float) -> str:
    if low == -math.inf:
        return f"under {high:.12g}"
    return f"{low:.12g} and over" if high == math.inf else f"{low:.12g} to {high:.12g}"


def _ranks(places: Values) -> np.ndarray:
    """Competition ranks, 1 for the highest; equal scores share the best of their ranks."""
    return pd.Series(-places).rank(method="min").astype(np.int64).to_numpy()
