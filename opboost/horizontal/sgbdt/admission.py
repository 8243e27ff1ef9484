"""Individual privacy filter of S-GBDT: charges every record and selects those that take part in a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Values
from opboost.errors import ParameterError
from opboost.horizontal.noise.leaf_noise import LeafNoise
from opboost.privacy.renyi import ChargeTable
from opboost.privacy.renyi_filter import RenyiFilter
from opboost.rng import Words


@dataclass(frozen=True, slots=True)
class PayingRecords:
    """Records of a round: those whose filter has budget left, Poisson-sampled by a coin each.

    Attributes
    ----------
    noise : LeafNoise
    n_records : int
    accounts : RenyiFilter or None
    prices : table or None
    coins : Words or None
        Not needed if all records are in every round.
    """

    noise: LeafNoise
    n_records: int
    accounts: RenyiFilter | None
    prices: ChargeTable | None
    coins: Words | None

    def __call__(self, grad: NDArray[np.int64], hess: NDArray[np.int64]) -> Mask:
        noise, is_in = self.noise, np.ones(self.n_records, np.bool_)
        if self.accounts is not None:
            is_in = pay(self.accounts, self.prices, noise.clipping.norms_squared(grad, hess) / noise.grad_std**2)
        if noise.rate == 1:
            return is_in
        assert self.coins is not None
        return is_in & (self.coins.words(self.n_records) < np.uint64(min(int(noise.rate * 2.0**64), 2**64 - 1)))


def admission(noise: LeafNoise, n_records: int, *, coins: Words | None) -> PayingRecords:
    """Make the record filter of a training, with nothing spent."""
    if coins is None and noise.rate != 1:
        raise ParameterError("records that are sampled need coins; nothing was released")
    return PayingRecords(noise, n_records, noise.filter_for(n_records), noise.prices(), coins)


def pay(accounts: RenyiFilter, prices: ChargeTable | None, mu_squared: Values) -> Mask:
    """Charge every record for its contribution, whether it is then sampled or not; returns who had budget left."""
    return accounts.admit(mu_squared if prices is None else prices.charges(mu_squared))
