"""Epochs of secure aggregation: members, keys and threshold; and the parcel a worker sends ahead of a round."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.errors import SumRefused, TooFewWorkers
from protocols.messages.fields import ByteRows as ByteRows
from protocols.secure_aggregation.masking import SEED_BYTES, SHARE_DIGEST_BYTES, TAG_BYTES
from protocols.secure_aggregation.sharing import SECRET_BYTES

Flags = NDArray[np.bool_]

MIN_WORKERS = 2
MAX_WORKERS = 200

# A share of b and one of k.
SEALED_BYTES = 2 * SECRET_BYTES + TAG_BYTES

# Of the digests of both.
DIGESTS_BYTES = 2 * SHARE_DIGEST_BYTES


def majority_threshold(threshold: int, n_workers: int) -> int:
    """Threshold of a sum among the workers present: the agreed one, but more than half of them."""
    return max(threshold, n_workers // 2 + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """Members of secure aggregation and their public keys, identical at all parties.

    Attributes
    ----------
    run : str
    number : int
    names : tuple of str
    keys : tuple of bytes
        Each worker's public key of the run.
    threshold : int
        How many workers must remain at every step: more than half of them.
    drawing : bytes
        Digest of the drawing of public bits that all of them hold. Workers of other drawings have no secret in common.
    terms : str
        Digest of the terms that all of them agreed on; likewise. A coordinator may show each worker its own terms.
    """

    run: str
    number: int
    names: tuple[str, ...]
    keys: tuple[bytes, ...]
    threshold: int
    drawing: bytes = b""
    terms: str = ""

    def __post_init__(self) -> None:
        n = len(self.names)
        if not MIN_WORKERS <= n <= MAX_WORKERS:
            raise SumRefused(f"secure aggregation is among {MIN_WORKERS} to {MAX_WORKERS} workers; found {n}")
        if len(self.keys) != n or len(set(self.names)) < n or len(set(self.keys)) < n:
            raise SumRefused("the workers of secure aggregation must have names and keys of their own")
        if not (n < 2 * self.threshold and 2 <= self.threshold <= n):
            raise SumRefused(
                f"the threshold of secure aggregation must be more than half of the {n} workers; got {self.threshold}"
            )

    @property
    def n_workers(self) -> int:
        return len(self.names)

    @property
    def run_bytes(self) -> bytes:
        """What names the run, its drawing and its terms in the derivation of keys."""
        return repr((self.run, self.drawing, self.terms)).encode()

    def context(self, number: int, sender: int, receiver: int) -> bytes:
        """What a sealed share belongs to."""
        return hashlib.sha256(
            repr((self.run_bytes, self.number, number, self.names, sender, receiver, self.threshold)).encode()
        ).digest()

    def view(self, number: int, present: Flags, survivors: Flags, *, sender: int, receiver: int) -> bytes:
        """What a worker confirms to another one: all that both must have been told alike, and who tells whom."""
        told = self.run_bytes, self.number, number, self.names, self.keys, self.threshold
        return repr((*told, present.tolist(), survivors.tolist(), sender, receiver)).encode()

    def nonce(self, number: int) -> bytes:
        """Of a round of this epoch, 12 bytes."""
        return self.number.to_bytes(4, "little") + number.to_bytes(8, "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What a worker sends ahead of a round.

    Attributes
    ----------
    sealed : ndarray of uint8, shape (n_workers, SEALED_BYTES)
        One row per worker that alone can open it.
    seeds : bytes
        The encrypted seeds of its masks with all workers.
    mark : bytes
        A hash of b, which tells whether b was put together rightly.
    digests : ndarray of uint8, shape (n_workers, DIGESTS_BYTES)
        One row per worker: a digest of its share of b, and one of its share of k, by which the coordinator checks each
        share alone.
    """

    sealed: ByteRows
    seeds: bytes
    mark: bytes
    digests: ByteRows

    def check(self, epoch: Epoch) -> None:
        """Refuse a parcel that is not of the epoch's size.

        Raises
        ------
        SumRefused
        """
        n = epoch.n_workers
        is_sized = (self.sealed.shape, self.digests.shape) == ((n, SEALED_BYTES), (n, DIGESTS_BYTES))
        if not is_sized or len(self.seeds) != n * SEED_BYTES + TAG_BYTES:
            raise SumRefused("its parcel is malformed")


def check_enough(epoch: Epoch, n: int, what: str) -> None:
    """Refuse a step that too few take part in."""
    if n < epoch.threshold:
        raise TooFewWorkers(
            f"{n} of {epoch.n_workers} workers {what} where {epoch.threshold} must; nothing was revealed"
        )
