"""Secure aggregation: a coordinator learns the sum of workers' vectors, and nothing else of them.

After Bonawitz et al. (CCS 2017), with double masks. All numbers are modulo 2**64; vectors are integers. In an epoch
(while the same workers take part) every two of them agree once on keys. Then, in each round::

    worker u                                            coordinator
    │ ── Parcel ──► │  made one round ahead: for every worker v, sealed under their common key, a share of b_u and one
    │               │  of k_u; and, encrypted under k_u, the seeds of u's masks with all others in this round
    │ ◄─ who is present: those whose parcels came ─ │
    │ ── y_u = x_u + mask(b_u) ± the masks with all who are present ──► │
    │ ◄─ who survived: those whose vectors came; all shares that were sealed for u ─ │
    │ ── per worker v: u's share of b_v if v survived, of k_v if it did not ──► │

The masks of two survivors cancel. From `threshold` answers the coordinator has every survivor's b, and of everybody
else the masks that do not cancel. Who drops out after the parcel, after the vector or after the shares changes nothing
else, as long as `threshold` workers remain at each step; below that a worker answers nothing.

What holds, and against whom (`threshold` t of n workers, 2 t > n):

- A coordinator that follows the protocol, together with up to t - 1 workers, learns the sum of the others' vectors.
- A vector that comes after its worker was given up stays under mask(b): nobody who told k_u tells b_u of that round, so
  a coordinator that lies about who survived does not get both from t workers each, if ``2 t > n + c`` for c workers
  that help it.
- b and k are fresh in every round and the pair's seeds come from a hash, so that what one round reveals says nothing of
  another one's masks.
- Keys pass through the coordinator. One that hands out keys of its own could read the shares; workers that know each
  other's lasting public keys (`identity`) exclude that, the others trust it.
- No worker can be stopped from adding a wrong vector; nor is it noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from protocols.errors import SumRefused
from protocols.secure_aggregation.epochs import SEALED_BYTES, ByteRows, Epoch, Flags, Parcel, check_enough
from protocols.secure_aggregation.masking import SECRET_BYTES, SEED_BYTES, Vector, add, combine, derive, mask, unseal


@dataclass(slots=True)
class SumRound:
    """The coordinator's side of one round.

    Parameters
    ----------
    epoch : Epoch
    number : int
    length : int
        Numbers in a vector.
    parcels : mapping of int to Parcel
        By worker; who has none is not present.

    Raises
    ------
    SumRefused
        If too few are present.
    """

    epoch: Epoch
    number: int
    length: int
    parcels: Mapping[int, Parcel]
    _total: Vector = field(init=False)
    _survivors: set[int] = field(init=False, default_factory=set)
    _shares: dict[int, ByteRows] = field(init=False, default_factory=dict)
    _is_closed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        for parcel in self.parcels.values():
            if parcel.sealed.shape != (self.epoch.n_workers, SEALED_BYTES):
                raise SumRefused("a worker's parcel is malformed; nothing was asked")
        check_enough(self.epoch, len(self.parcels), "are present")
        self._total = np.zeros(self.length, "<u8")

    @property
    def present(self) -> Flags:
        return self._flags(self.parcels)

    @property
    def survivors(self) -> Flags:
        """Whose vectors are in the sum."""
        return self._flags(self._survivors)

    def add(self, worker: int, masked: Vector) -> None:
        """Take a vector.

        Raises
        ------
        SumRefused
            If it is not of the round's length and field, or the worker's second one; it is not counted then.
        """
        if masked.dtype != np.dtype("<u8") or masked.shape != (self.length,):
            raise SumRefused(
                f"a vector has {len(masked)} numbers of {masked.dtype.name} where {self.length} of uint64 are due"
            )
        if worker not in self.parcels or worker in self._survivors or self._is_closed:
            raise SumRefused("a vector was not asked for; it is not counted")
        self._survivors.add(worker)
        self._total += masked

    def request(self, worker: int) -> ByteRows:
        """What was sealed for a survivor, when no more vectors are waited for.

        Raises
        ------
        SumRefused
            If too few survived.
        """
        check_enough(self.epoch, len(self._survivors), "sent their vectors")
        self._is_closed = True
        return self._sealed_for(worker)

    def _sealed_for(self, worker: int) -> ByteRows:
        rows = np.zeros((self.epoch.n_workers, SEALED_BYTES), np.uint8)
        for u, parcel in self.parcels.items():
            rows[u] = parcel.sealed[worker]
        return rows

    def add_shares(self, worker: int, shares: ByteRows) -> None:
        """Take a survivor's shares."""
        if shares.shape != (self.epoch.n_workers, SECRET_BYTES) or worker not in self._survivors:
            raise SumRefused("shares are malformed or were not asked for; they are not counted")
        self._shares[worker] = shares

    @property
    def has_enough_shares(self) -> bool:
        """Whether the sum can be unmasked."""
        return len(self._shares) >= self.epoch.threshold

    def result(self) -> NDArray[np.int64]:
        """The survivors' sum.

        Raises
        ------
        SumRefused
            If too few sent their shares, or the shares do not fit together. Nothing was learnt then.
        """
        check_enough(self.epoch, len(self._shares), "sent their shares")
        total = self._total.copy()
        for u in sorted(self._survivors):
            own = self._combined(u)
            if derive(own, "mark") != self.parcels[u].mark:
                raise SumRefused("shares of a mask do not fit together; nothing was learnt")
            add(total, mask(derive(own, "own mask"), self.length), is_plus=False)
        for d in sorted(set(self.parcels) - self._survivors):
            seeds = self._seeds(d, self._combined(d))
            for u in sorted(self._survivors):
                add(total, mask(seeds[u], self.length), is_plus=u > d)
        return total.view("<i8")

    def _combined(self, worker: int) -> bytes:
        some = sorted(self._shares)[: self.epoch.threshold]
        return combine({place: self._shares[place][worker].tobytes() for place in some})

    def _seeds(self, worker: int, opening: bytes) -> list[bytes]:
        context = self.epoch.context(self.number, worker, worker)
        text = unseal(derive(opening, "seeds"), self.epoch.nonce(self.number), self.parcels[worker].seeds, context)
        return [text[i : i + SEED_BYTES] for i in range(0, len(text), SEED_BYTES)]

    def _flags(self, workers: Mapping[int, Parcel] | set[int]) -> Flags:
        flags = np.zeros(self.epoch.n_workers, np.bool_)
        flags[list(workers)] = True
        return flags
