"""Assignment of records to disjoint parts by a coin per record: the basis of parallel composition.

Trees that touch disjoint records cost as much as one of them only if a record's part does not depend on the other
records. Drawing a fixed number of records, or a fraction of ``len(data)``, does: one record more moves the others
about, and two such parts may lose twice the budget. So here every record draws its own part, from public probabilities;
given the coins, a record is in at most one part, and neighbours differ in that part alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from opboost.errors import AccountError, ParameterError
from opboost.rng import BitSource


@dataclass(frozen=True, slots=True)
class RecordCoins:
    """The probabilities with which a record belongs to each part; with the rest it belongs to none.

    Parameters
    ----------
    probabilities : tuple of float
        Public, not negative, with a sum of at most 1.
    """

    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        probabilities = tuple(float(p) for p in self.probabilities)
        if not probabilities or not all(0 <= p <= 1 for p in probabilities) or math.fsum(probabilities) > 1 + 1e-9:
            raise ParameterError(
                f"coins need probabilities that sum to at most 1; got {len(probabilities)} with a sum of "
                f"{math.fsum(probabilities):.6g}"
            )
        object.__setattr__(self, "probabilities", probabilities)

    @classmethod
    def geometric(cls, n_parts: int, *, ratio: float) -> RecordCoins:
        """Shares of 1 in geometric proportion: ``ratio**t`` for t = 0, 1, ...; a ratio of 1 for even shares."""
        weights = [ratio**t for t in range(n_parts)]
        return cls(tuple(weight / math.fsum(weights) for weight in weights))

    @property
    def n_parts(self) -> int:
        """Number of parts."""
        return len(self.probabilities)

    def hazard(self, part: int) -> float:
        """Probability that a record which is in none of the parts before is in this one."""
        left = 1.0 - math.fsum(self.probabilities[:part])
        return 1.0 if left <= self.probabilities[part] else self.probabilities[part] / left

    def deal(self, n_records: int, *, rng: BitSource) -> Deal:
        """Start the assignment of records to parts."""
        return Deal(self, n_records, rng=rng)


class Deal:
    """Assignment of records part after part, each record at most once in all.

    Parameters
    ----------
    coins : RecordCoins
    n_records : int
    rng : BitSource
    """

    def __init__(self, coins: RecordCoins, n_records: int, *, rng: BitSource) -> None:
        self.coins = coins
        self._rng = rng
        self._is_left = np.ones(n_records, dtype=np.bool_)
        self._n_dealt = 0
        self._lock = Lock()

    def next_part(self, is_eligible: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """The records of the next part, ascending.

        Parameters
        ----------
        is_eligible : ndarray of bool, shape (n_records,), optional
            Records that may be used now. What makes a record eligible must be a function of itself and of what is
            public. One that is not eligible stays for the parts to come.

        Raises
        ------
        AccountError
            If all parts have been dealt. No record is handed out then.
        """
        with self._lock:
            return self._dealt(is_eligible)

    def _dealt(self, is_eligible: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        if self._n_dealt == self.coins.n_parts:
            raise AccountError(f"all {self._n_dealt} parts have been dealt; a record must not be used twice")
        uniform = self._rng.uniforms(len(self._is_left))
        wins = self._is_left & (uniform < self.coins.hazard(self._n_dealt))
        if is_eligible is not None:
            if np.shape(is_eligible) != self._is_left.shape or np.asarray(is_eligible).dtype != np.bool_:
                raise ParameterError(f"eligibility needs one truth value per record ({len(self._is_left)} records)")
            wins &= np.asarray(is_eligible)
        self._n_dealt += 1
        rows = np.flatnonzero(wins)
        self._is_left[rows] = False
        return rows
