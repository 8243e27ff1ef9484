"""Secure aggregation: a coordinator learns the sum of workers' vectors, and nothing else of them.

After Bonawitz et al. (CCS 2017), with double masks. All numbers are modulo 2**64; vectors are integers. In an epoch
(while the same workers take part) every two of them agree once on keys. Then, in each round::

    worker u                                            coordinator
    │ ── Parcel ──► │  made one round ahead: for every worker v, sealed under their common key, a share of b_u and one
    │               │  of k_u; and, encrypted under k_u, the seeds of u's masks with all others in this round
    │ ◄─ who is present: those whose parcels came ─ │
    │ ── y_u = x_u + mask(b_u) ± the masks with all who are present ──► │
    │ ◄─ who survived: those whose vectors came ─ │
    │ ── per worker v: a MAC of who was present and who survived, under the common key of u and v ──► │
    │ ◄─ all shares that were sealed for u; all MACs for u ─ │  it goes on if `threshold` MACs fit what it was told
    │ ── per worker v: u's share of b_v if v survived, of k_v if it did not; whose MACs fit ──► │

The masks of two survivors cancel. From `threshold` answers the coordinator has every survivor's b, and of everybody
else the masks that do not cancel. Who drops out after the parcel, after the vector or after the MACs changes nothing
else, as long as `threshold` workers remain at each step; below that a worker reveals nothing. One that has too few MACs
that fit keeps its shares back, and tells whose fit.

What holds, and against whom (`threshold` t of n workers, 2 t > n):

- A coordinator that follows the protocol, together with up to t - 1 workers, learns the sum of the others' vectors.
- A coordinator that tells workers different lists learns no more, together with c workers, if ``2 t > n + c``. A worker
  confirms one pair of lists in a round, in which present is the list it masked under, and gives shares only if t
  workers, itself included, confirmed the same pair. Two pairs would need t - c of the n - c others each, which are not
  that many; so all shares of a round are of one pair, and nobody tells both b_u and k_u. The t - c or more others that
  confirmed it all masked among those present, survivors included, so that the masks between any two of them, and
  between each of them and any other survivor, go away only in a sum with both. A survivor that masked under another
  list did so among t workers or more, of whom one confirmed: no vector comes out without theirs.
- Masks of a pair are of what both were asked about (`about`): workers that were asked different things have no sum.
  Otherwise one could be asked anew while the others repeat what they answered, their noise included.
- A vector that comes after its worker was given up stays under mask(b), which is told of survivors alone.
- b and k are fresh in every round and the pair's seeds come from a hash, so that what one round reveals says nothing of
  another one's masks. A MAC is of a run, drawing, terms, epoch, round, sender and receiver too.
- Keys pass through the coordinator. One that hands out keys of its own could read the shares and make MACs; workers
  that know each other's lasting public keys (`identity`) exclude that, the others trust it.
- A worker can always make a sum wrong by what it sends, unnoticed. Under a wrong lasting key masks do not cancel.
- Wrong shares stop no sum as long as `threshold` right ones came and a set of these is found (`MAX_TRIES`). Whose they
  were is told together with who dealt them, since either of the two may have made them wrong. So are wrong MACs,
  together with who says so; they stop a round only in which fewer than t workers are honest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import SystemRandom

import numpy as np
from numpy.typing import NDArray

from protocols.errors import SumRefused
from protocols.secure_aggregation.epochs import SEALED_BYTES, ByteRows, Epoch, Flags, Parcel, check_enough
from protocols.secure_aggregation.masking import (
    CONFIRMATION_BYTES,
    SEED_BYTES,
    Vector,
    add,
    derive,
    mask,
    pair_mask,
    unseal,
)
from protocols.secure_aggregation.sharing import SECRET_BYTES, combine

# Sets of shares that are tried for one secret when the first set was wrong: all there are among up to ten workers; of
# more as many at random, in 2 s of fifty workers and 6 s of 200. With a threshold of half they miss four liars among
# fifty once in 150,000 times; with one of 17 they miss two among twenty once in 50 times, and three mostly.
MAX_TRIES = 252


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
    doubted : frozenset of int
        Workers whose shares were wrong before; theirs are tried last.
    about : bytes
        Digest of what is summed, as the workers know it.

    Raises
    ------
    SumRefused
        If too few are present.
    """

    epoch: Epoch
    number: int
    length: int
    parcels: Mapping[int, Parcel]
    doubted: frozenset[int] = frozenset()
    about: bytes = b""
    _total: Vector = field(init=False)
    _survivors: set[int] = field(init=False, default_factory=set)
    _confirmations: dict[int, ByteRows] = field(init=False, default_factory=dict)
    _denied: set[tuple[int, int]] = field(init=False, default_factory=set)
    _shares: dict[int, ByteRows] = field(init=False, default_factory=dict)
    _kept_back: set[int] = field(init=False, default_factory=set)
    _right: dict[int, dict[int, bytes]] = field(init=False, default_factory=dict)
    _wrong: set[tuple[int, int]] = field(init=False, default_factory=set)
    _is_closed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        for parcel in self.parcels.values():
            parcel.check(self.epoch)
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

    def close(self) -> Flags:
        """Take no more vectors; who survived, which the survivors are told.

        Raises
        ------
        SumRefused
            If too few survived.
        """
        check_enough(self.epoch, len(self._survivors), "sent their vectors")
        self._is_closed = True
        return self.survivors

    def add_confirmations(self, worker: int, rows: ByteRows) -> None:
        """Take a survivor's confirmations, one row for each worker."""
        is_due = self._is_closed and worker in self._survivors and worker not in self._confirmations
        if rows.shape != (self.epoch.n_workers, CONFIRMATION_BYTES) or not is_due:
            raise SumRefused("confirmations are malformed or were not asked for; they are not counted")
        self._confirmations[worker] = rows

    def request(self, worker: int) -> tuple[ByteRows, ByteRows]:
        """What was sealed for a survivor, and what was confirmed to it.

        Raises
        ------
        SumRefused
            If too few confirmed who took part.
        """
        check_enough(self.epoch, len(self._confirmations), "confirmed who took part")
        confirmations = np.zeros((self.epoch.n_workers, CONFIRMATION_BYTES), np.uint8)
        for u, rows in self._confirmations.items():
            confirmations[u] = rows[worker]
        return self._sealed_for(worker), confirmations

    def _sealed_for(self, worker: int) -> ByteRows:
        rows = np.zeros((self.epoch.n_workers, SEALED_BYTES), np.uint8)
        for u, parcel in self.parcels.items():
            rows[u] = parcel.sealed[worker]
        return rows

    def add_shares(self, worker: int, shares: ByteRows, confirmed: Flags) -> None:
        """Take a survivor's only answer: its shares, or none if too few confirmations are right, and which are."""
        n, is_due = self.epoch.n_workers, worker in self._confirmations and worker not in self.answered
        if (shares.shape, confirmed.shape) != ((n, SECRET_BYTES), (n,)) or not is_due:
            raise SumRefused("shares are malformed or were not asked for; they are not counted")
        denied = {(author, worker) for author in self._confirmations if not confirmed[author]}
        self._denied |= denied
        if shares.any() or len(self._confirmations) - len(denied) >= self.epoch.threshold:
            self._shares[worker] = shares
        else:
            self._kept_back.add(worker)

    @property
    def answered(self) -> frozenset[int]:
        """Who sent its shares, or that it keeps them back."""
        return self.kept_back.union(self._shares)

    @property
    def kept_back(self) -> frozenset[int]:
        """Who sent no share, since too few confirmed to it what it was told, as it says."""
        return frozenset(self._kept_back)

    @property
    def has_enough_shares(self) -> bool:
        """Whether the sum can be unmasked, if the shares are right."""
        return len(self._shares) >= self.epoch.threshold

    @property
    def wrong_shares(self) -> frozenset[tuple[int, int]]:
        """Who sent a wrong share or none, and of whose secret: of workers without whom `result` had to do."""
        return frozenset(self._wrong)

    @property
    def wrong_confirmations(self) -> frozenset[tuple[int, int]]:
        """Who sent a wrong confirmation, and to whom, as this one says."""
        return frozenset(self._denied)

    def result(self) -> NDArray[np.int64]:
        """The survivors' sum.

        Raises
        ------
        SumRefused
            If too few sent their shares, or too few of these are right. Nothing was learnt then.
        """
        check_enough(self.epoch, len(self._shares), "sent their shares")
        total = self._total.copy()
        for u in sorted(self._survivors):
            add(total, mask(derive(self._secret(u), "own mask"), self.length), is_plus=False)
        for d in sorted(set(self.parcels) - self._survivors):
            seeds = self._seeds(d, self._secret(d))
            for u in sorted(self._survivors):
                add(total, pair_mask(seeds[u], self.about, self.length), is_plus=u > d)
        for holder in {holder for holder, _ in self._wrong}:
            for dealer in self._right:
                self._check(holder, dealer)
        return total.view("<i8")

    def _secret(self, dealer: int) -> bytes:
        """A worker's secret of this round, from the first set of shares that gives the right one."""
        name, threshold = self.epoch.names[dealer], self.epoch.threshold
        shares = {holder: rows[dealer].tobytes() for holder, rows in self._shares.items() if rows[dealer].any()}
        self._wrong |= {(holder, dealer) for holder in self._shares if holder not in shares}
        if len(shares) < threshold:
            raise SumRefused(f"{len(shares)} shares of {name}'s secret came where {threshold} must; nothing was learnt")
        for n_tried, holders in enumerate(self._sets_of(list(shares))):
            some = {holder: shares[holder] for holder in holders}
            secret = combine(some)
            if self._is_right(dealer, secret):
                self._right[dealer] = some
                for holder in shares if n_tried else ():
                    self._check(holder, dealer)
                return secret
        raise SumRefused(
            f"the shares of {name}'s secret do not fit together: it dealt wrong ones, or too many others sent wrong "
            "ones; nothing was learnt"
        )

    def _sets_of(self, holders: list[int]) -> Iterator[tuple[int, ...]]:
        """Sets of as many workers as a secret takes: first of those who were never wrong, then all or random ones."""
        n, wrong = self.epoch.threshold, self.doubted | {holder for holder, _ in self._wrong}
        holders.sort(key=lambda holder: (holder in wrong, holder))
        yield tuple(holders[:n])
        if math.comb(len(holders), n) <= MAX_TRIES:
            yield from itertools.islice(itertools.combinations(holders, n), 1, None)
        else:
            draw = SystemRandom()
            yield from (tuple(draw.sample(holders, n)) for _ in range(MAX_TRIES))

    def _check(self, holder: int, dealer: int) -> None:
        """Note a share that spoils the right set, put in the place of one of its shares."""
        right = self._right[dealer]
        if holder not in right:
            changed = {**dict(list(right.items())[1:]), holder: self._shares[holder][dealer].tobytes()}
            if not self._is_right(dealer, combine(changed)):
                self._wrong.add((holder, dealer))

    def _is_right(self, worker: int, secret: bytes) -> bool:
        """Whether this is the survivor's b, or the key of the others' seeds."""
        if worker in self._survivors:
            return derive(secret, "mark") == self.parcels[worker].mark
        try:
            self._seeds(worker, secret)
        except SumRefused:
            return False
        return True

    def _seeds(self, worker: int, opening: bytes) -> list[bytes]:
        context = self.epoch.context(self.number, worker, worker)
        text = unseal(derive(opening, "seeds"), self.epoch.nonce(self.number), self.parcels[worker].seeds, context)
        return [text[i : i + SEED_BYTES] for i in range(0, len(text), SEED_BYTES)]

    def _flags(self, workers: Mapping[int, Parcel] | set[int]) -> Flags:
        flags = np.zeros(self.epoch.n_workers, np.bool_)
        flags[list(workers)] = True
        return flags
