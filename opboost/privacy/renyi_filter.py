"""Individual Renyi privacy filter: every record is charged for its contribution, until its budget is spent.

Feldman and Zrnic (NeurIPS 2021), algorithm 3, at one order that is fixed with the budget before any data are seen. It
is sound if every charge is a function of the record itself and of what was released before, and covers the record's
contribution to the next release; a record that is left out contributes nothing and pays nothing. A record pays whether
or not a later coin samples it. Who is active, how many are, and what is left are as secret as the data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opboost.errors import AccountError, check_positive
from opboost.privacy.releases import check_order

# Accounts are whole multiples of this share of the budget, charges rounded up: sums are exact.
_UNITS = 2**50

# A budget for so many rounds is larger by this much, so that rounding charges up does not cost the last of them.
_HEADROOM = 1e-9


class RenyiFilter:
    """Privacy budgets of the records, in the Renyi divergence at one order.

    Parameters
    ----------
    n_records : int
    order : int
    budget : float
        What no record may exceed.

    Notes
    -----
    Privacy: everything released on admitted records has Renyi divergence at most `budget` at `order` between data sets
    that differ by one record, however many rounds there are. The number of rounds must not depend on the data.
    """

    def __init__(self, n_records: int, *, order: int, budget: float) -> None:
        self.order = check_order(order)
        self.budget = check_positive("the budget of a filter", budget)
        self._spent = np.zeros(n_records, dtype=np.int64)

    @classmethod
    def for_rounds(cls, n_records: int, *, order: int, largest_charge: float, n_rounds: int) -> RenyiFilter:
        """A filter with the budget that lets a record with the largest charge take part in so many rounds."""
        return cls(n_records, order=order, budget=largest_charge * n_rounds * (1 + _HEADROOM))

    def admit(self, charges: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Charge every record with budget left; returns which may be used in this round.

        Parameters
        ----------
        charges : ndarray of float64, shape (n_records,)
            Divergence at this order of the next release, for each record as it would contribute.

        Returns
        -------
        ndarray of bool, shape (n_records,)

        Raises
        ------
        AccountError
            If a charge is negative or not a number. Nothing was charged then, and nothing may be released.
        """
        charges = np.asarray(charges, dtype=np.float64)
        if charges.shape != self._spent.shape:
            raise AccountError(f"one charge per record is needed: {len(self._spent)}; got shape {charges.shape}")
        if not (charges >= 0).all():
            raise AccountError("a charge is negative or not a number; nothing was charged")
        # The quotient is within an ulp; a charge beyond the budget becomes one that nobody can pay.
        share = np.minimum(charges / self.budget * (1 + 1e-15), 2.0)
        units = np.ceil(share * _UNITS).astype(np.int64)
        is_admitted = self._spent + units <= _UNITS
        self._spent += np.where(is_admitted, units, 0)
        return is_admitted
