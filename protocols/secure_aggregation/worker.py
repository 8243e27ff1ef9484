"""A worker's side of secure aggregation; `protocols.secure_aggregation.sum` has the sequence, and what holds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from secrets import token_bytes

import numpy as np
from numpy.typing import NDArray

from protocols.errors import SumRefused
from protocols.secure_aggregation.epochs import (
    DIGESTS_BYTES,
    SEALED_BYTES,
    ByteRows,
    Epoch,
    Flags,
    Parcel,
    check_enough,
)
from protocols.secure_aggregation.masking import (
    CONFIRMATION_BYTES,
    OwnKey,
    PairKeys,
    Vector,
    add,
    confirmation,
    derive,
    is_confirmation,
    mask,
    pair_mask,
    seal,
    share_digest,
    unseal,
)
from protocols.secure_aggregation.sharing import SECRET_BYTES, split
from protocols.transport.keys import KeyPair


class SummedWorker:
    """A worker's side. Rounds have numbers, and none is ever answered twice, not by a forked process either.

    Parameters
    ----------
    name, run : str
    identity : KeyPair, optional
        Its lasting key; see `OwnKey`.
    """

    def __init__(self, name: str, run: str, *, identity: KeyPair | None = None) -> None:
        self._name = name
        self._run = run
        self._key = OwnKey(identity)
        self._process = os.getpid()
        self._identity = None if identity is None else identity.public
        self._epoch: Epoch | None = None
        self._place = 0
        self._pairs: list[PairKeys] = []
        self._prepared: tuple[int, bytes, list[bytes]] | None = None
        self._last_masked = -1
        self._masked: tuple[int, Flags] | None = None
        self._confirmed: tuple[int, Flags, Flags] | None = None

    @property
    def public_key(self) -> bytes:
        return self._key.public

    def join(self, epoch: Epoch, lasting_keys: Mapping[str, bytes] | None = None) -> None:
        """Take part in a new epoch.

        Parameters
        ----------
        epoch : Epoch
        lasting_keys : mapping of str to bytes, optional
            The other workers' lasting public keys, by name; required with an identity.

        Raises
        ------
        SumRefused
        """
        if epoch.run != self._run or (self._epoch is not None and epoch.number <= self._epoch.number):
            raise SumRefused("the list of workers belongs to another run or is an old one; nothing was sent")
        if self._name not in epoch.names or epoch.keys[epoch.names.index(self._name)] != self.public_key:
            raise SumRefused("the list of workers does not have this worker under its own key; nothing was sent")
        lasting = {**(lasting_keys or {}), self._name: self._identity}
        if unknown := [name for name in epoch.names if self._identity is not None and name not in lasting]:
            raise SumRefused(f"no public key is known here of the workers {', '.join(unknown)}; nothing was sent")
        self._pairs = [
            self._key.pair(key, lasting.get(name), run=epoch.run_bytes)
            for name, key in zip(epoch.names, epoch.keys, strict=True)
        ]
        self._epoch, self._place = epoch, epoch.names.index(self._name)
        self._prepared = self._masked = self._confirmed = None

    def prepare(self, number: int) -> Parcel:
        """The parcel for a round that is to come."""
        epoch = self._joined()
        if number <= self._last_masked or (self._prepared is not None and number <= self._prepared[0]):
            raise SumRefused(f"round {number} of secure aggregation is over; nothing was sent")
        # b and k of `protocols.secure_aggregation.sum`.
        mask_secret, seeds_secret = token_bytes(SECRET_BYTES), token_bytes(SECRET_BYTES)
        seeds = [derive(pair.masks, "round", epoch.nonce(number)) for pair in self._pairs]
        mask_shares, seeds_shares = (
            split(secret, threshold=epoch.threshold, n_shares=epoch.n_workers) for secret in (mask_secret, seeds_secret)
        )
        shares = list(zip(mask_shares, seeds_shares, strict=True))
        sealed = [
            seal(pair.to_them, epoch.nonce(number), b"".join(pair_of_shares), epoch.context(number, self._place, v))
            for v, (pair, pair_of_shares) in enumerate(zip(self._pairs, shares, strict=True))
        ]
        self._prepared = number, mask_secret, seeds
        context = epoch.context(number, self._place, self._place)
        digests = [
            share_digest(share, context, v) for v, pair_of_shares in enumerate(shares) for share in pair_of_shares
        ]
        return Parcel(
            sealed=np.frombuffer(b"".join(sealed), np.uint8).reshape(-1, SEALED_BYTES),
            seeds=seal(derive(seeds_secret, "seeds"), epoch.nonce(number), b"".join(seeds), context),
            mark=derive(mask_secret, "mark"),
            digests=np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGESTS_BYTES),
        )

    def mask(self, number: int, present: Flags, vector: NDArray[np.int64], *, about: bytes = b"") -> Vector:
        """The vector of a round, under masks.

        Parameters
        ----------
        number : int
        present : ndarray of bool, shape (n_workers,)
            Who sent a parcel for this round.
        vector : ndarray of int64, shape (length,)
        about : bytes
            Digest of what is summed: only vectors about the same thing have a sum.

        Raises
        ------
        SumRefused
            If the round is not the prepared one, or too few are present. Nothing was sent then.
        """
        epoch = self._joined()
        if self._prepared is None or self._prepared[0] != number or number <= self._last_masked:
            raise SumRefused(f"round {number} of secure aggregation is not the one that is due; nothing was sent")
        _check_present(epoch, present, self._place)
        _, mask_secret, seeds = self._prepared
        self._prepared = self._confirmed = None
        self._last_masked, self._masked = number, (number, present.copy())
        masked = vector.astype("<u8") + mask(derive(mask_secret, "own mask"), len(vector))
        for v in np.flatnonzero(present):
            if v != self._place:
                add(masked, pair_mask(seeds[v], about, len(vector)), is_plus=self._place < int(v))
        return masked

    def confirm(self, number: int, survivors: Flags) -> ByteRows:
        """Authenticate to every worker who was present and who survived, as this worker was told; once in a round.

        Parameters
        ----------
        number : int
        survivors : ndarray of bool, shape (n_workers,)
            Whose vectors the coordinator has.

        Returns
        -------
        ndarray of uint8, shape (n_workers, CONFIRMATION_BYTES)
            One row per worker that can verify it.

        Raises
        ------
        SumRefused
            If fewer than the threshold survived, or this worker did not, or somebody did who was not present. Nothing
            will be revealed then.
        """
        epoch = self._joined()
        if self._masked is None or self._masked[0] != number:
            raise SumRefused(
                f"round {number} of secure aggregation is not the one to be confirmed; nothing was revealed"
            )
        present = self._masked[1]
        self._masked = None
        _check_present(epoch, survivors, self._place)
        if (survivors & ~present).any():
            raise SumRefused("the list of survivors has workers that were not present; nothing was revealed")
        self._confirmed = number, present, survivors.copy()
        rows = [
            confirmation(pair.confirmations, epoch.view(number, present, survivors, sender=self._place, receiver=v))
            for v, pair in enumerate(self._pairs)
        ]
        return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, CONFIRMATION_BYTES)

    def unmask(self, number: int, sealed: ByteRows, confirmations: ByteRows) -> tuple[ByteRows, Flags]:
        """Shares of one secret of each worker that was present: never of both, and only once.

        A worker that sealed something else for this one gets no share in return, and one whose confirmation is wrong is
        passed over; neither stops anybody while enough others are right. With too few right confirmations this worker
        keeps all shares back, tells whose are wrong, and answers nothing more in the round: it need not end.

        Parameters
        ----------
        number : int
        sealed : ndarray of uint8, shape (n_workers, SEALED_BYTES)
            What the workers sealed for this one; rows of those who were not present do not count.
        confirmations : ndarray of uint8, shape (n_workers, CONFIRMATION_BYTES)
            What the workers confirmed to this one; rows of those who did not survive do not count.

        Returns
        -------
        shares : ndarray of uint8, shape (n_workers, SECRET_BYTES)
            Zeros where there is no share: everywhere, if fewer than the threshold confirmed what this worker did,
            itself included.
        confirmed : ndarray of bool, shape (n_workers,)
            Whose confirmations are right.

        Raises
        ------
        SumRefused
            If this worker did not confirm the round, or as many parts as the threshold do not open: no fewer workers
            can have altered them, so that it was the coordinator. Nothing was revealed then.
        """
        epoch = self._joined()
        if self._confirmed is None or self._confirmed[0] != number:
            raise SumRefused(
                f"round {number} of secure aggregation is not the one to be unmasked; nothing was revealed"
            )
        _, present, survivors = self._confirmed
        self._confirmed = None
        n = epoch.n_workers
        if sealed.shape != (n, SEALED_BYTES) or confirmations.shape != (n, CONFIRMATION_BYTES):
            raise SumRefused("what was sealed for this worker, or confirmed to it, is malformed; nothing was revealed")
        confirmed = self._agreeing(epoch, number, present, survivors, confirmations)
        shares = np.zeros((epoch.n_workers, SECRET_BYTES), np.uint8)
        if confirmed.sum() < epoch.threshold:
            return shares, confirmed
        unopened: list[SumRefused] = []
        for u in np.flatnonzero(present):
            context = epoch.context(number, int(u), self._place)
            try:
                opened = unseal(self._pairs[u].from_them, epoch.nonce(number), sealed[u].tobytes(), context)
            except SumRefused as error:
                unopened.append(error)
                continue
            shares[u] = np.frombuffer(opened[:SECRET_BYTES] if survivors[u] else opened[SECRET_BYTES:], np.uint8)
        if len(unopened) >= epoch.threshold:
            raise unopened[0]
        return shares, confirmed

    def _agreeing(self, epoch: Epoch, number: int, present: Flags, survivors: Flags, rows: ByteRows) -> Flags:
        """Which survivors have confirmed that they were told what this worker was told."""
        confirmed = np.zeros(epoch.n_workers, np.bool_)
        for u in np.flatnonzero(survivors).tolist():
            view = epoch.view(number, present, survivors, sender=u, receiver=self._place)
            confirmed[u] = is_confirmation(self._pairs[u].confirmations, view, rows[u].tobytes())
        return confirmed

    def _joined(self) -> Epoch:
        if os.getpid() != self._process:
            raise SumRefused(
                "the keys of this worker belong to another process, of which this one is a copy. A mask serves once: "
                "nothing was sent"
            )
        if self._epoch is None:
            raise SumRefused("no list of workers has come yet; nothing was sent")
        return self._epoch


def _check_present(epoch: Epoch, flags: Sequence[bool] | Flags, place: int) -> None:
    """A worker's own look at who takes part."""
    flags = np.asarray(flags)
    if flags.shape != (epoch.n_workers,) or not flags[place]:
        raise SumRefused("the list of those who take part is malformed or lacks this worker; nothing was sent")
    check_enough(epoch, int(flags.sum()), "take part")
