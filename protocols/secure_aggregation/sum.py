"""Secure aggregation: a coordinator learns the sum of workers' vectors, and nothing else of them.

After Bonawitz et al. (CCS 2017), with double masks. All numbers are modulo 2**64; vectors are integers. In an epoch
(while the same workers take part) every two of them agree once on keys. Then, in each round::

    worker u                                            coordinator
    │ ── Parcel ──► │  made one round ahead: for every worker v, sealed under their common key, a share of b_u and one
    │               │  of k_u, and a digest of each; encrypted under k_u, the seeds of u's masks with all others
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
- Wrong shares are noticed, each by its digest alone, and stop no sum as long as `threshold` right ones came. Whose they
  were is told together with who dealt them, since either of the two may have sent what is wrong. So are wrong MACs,
  together with who says so; they stop a round only in which fewer than t workers are honest.
- A worker that deals shares of which too few give its secret stops the rounds that it survives, and is named. One that
  drops out then stops one round; the next one is without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from protocols.errors import SumRefused, TooFewWorkers
from protocols.secure_aggregation.epochs import SEALED_BYTES, ByteRows, Epoch, Flags, Parcel, check_enough
from protocols.secure_aggregation.masking import (
    CONFIRMATION_BYTES,
    SEED_BYTES,
    SHARE_DIGEST_BYTES,
    Vector,
    add,
    derive,
    mask,
    pair_mask,
    share_digest,
    unseal,
)
from protocols.secure_aggregation.sharing import SECRET_BYTES, combine


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
    about: bytes = b""
    _total: Vector = field(init=False)
    _survivors: set[int] = field(init=False, default_factory=set)
    _confirmations: dict[int, ByteRows] = field(init=False, default_factory=dict)
    _denied: set[tuple[int, int]] = field(init=False, default_factory=set)
    _shares: dict[int, ByteRows] = field(init=False, default_factory=dict)
    _kept_back: set[int] = field(init=False, default_factory=set)
    _wrong: set[tuple[int, int]] = field(init=False, default_factory=set)
    _misdealt: set[int] = field(init=False, default_factory=set)
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
        """Who sent a wrong share or none to `result`, and of whose secret: one of the two is at fault.

        A worker and itself, too, if the right shares of its secret do not fit together.
        """
        return frozenset(self._wrong | {(dealer, dealer) for dealer in self._misdealt})

    @property
    def wrong_confirmations(self) -> frozenset[tuple[int, int]]:
        """Who sent a wrong confirmation, and to whom, as this one says."""
        return frozenset(self._denied)

    def result(self) -> NDArray[np.int64]:
        """The survivors' sum.

        Raises
        ------
        TooFewWorkers
            If too few sent their shares, or the secret of a worker that dropped out does not come out: a round without
            it may still have a sum. Nothing was learnt then.
        SumRefused
            If a survivor's secret does not come out. Nothing was learnt then.
        """
        check_enough(self.epoch, len(self._shares), "sent their shares")
        self._note_wrong_shares()
        total = self._total.copy()
        for u in sorted(self._survivors):
            add(total, mask(derive(self._secret(u), "own mask"), self.length), is_plus=False)
        for d in sorted(set(self.parcels) - self._survivors):
            seeds = self._seeds(d, self._secret(d))
            for u in sorted(self._survivors):
                add(total, pair_mask(seeds[u], self.about, self.length), is_plus=u > d)
        return total.view("<i8")

    def _note_wrong_shares(self) -> None:
        """Note each share that is not the one of which its dealer sent a digest; one that is lacking is not either."""
        for dealer, parcel in self.parcels.items():
            context = self.epoch.context(self.number, dealer, dealer)
            part = slice(SHARE_DIGEST_BYTES) if dealer in self._survivors else slice(SHARE_DIGEST_BYTES, None)
            for holder, rows in self._shares.items():
                found, due = rows[dealer].tobytes(), parcel.digests[holder, part].tobytes()
                if share_digest(found, context, holder) != due:
                    self._wrong.add((holder, dealer))

    def _secret(self, dealer: int) -> bytes:
        """A worker's secret of this round, from right shares; where these are too few, from wrong ones as well.

        The secret still comes out if its dealer sent right shares and wrong digests.
        """
        holders = sorted(self._shares, key=lambda holder: ((holder, dealer) in self._wrong, holder))
        some = {holder: self._shares[holder][dealer].tobytes() for holder in holders[: self.epoch.threshold]}
        secret = combine(some)
        if not self._is_right(dealer, secret):
            raise self._lost(dealer)
        return secret

    def _lost(self, dealer: int) -> SumRefused:
        """The error of a secret that does not come out. With enough right shares nobody but the dealer is at fault."""
        name, threshold = self.epoch.names[dealer], self.epoch.threshold
        wrong = [self.epoch.names[holder] for holder in sorted(self._shares) if (holder, dealer) in self._wrong]
        n_right = len(self._shares) - len(wrong)
        if n_right >= threshold:
            self._misdealt.add(dealer)
            why = f"the shares of {name}'s secret do not fit together: it dealt wrong ones"
        else:
            others = f"those of {', '.join(wrong)} are not the ones that it sent digests of"
            why = f"{n_right} right shares of {name}'s secret came where {threshold} must: {others}"
        kind = SumRefused if dealer in self._survivors else TooFewWorkers
        return kind(f"{why}; nothing was learnt")

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
