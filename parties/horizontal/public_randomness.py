"""Public randomness: commitments, and the bits drawn from the random bytes behind them."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from opboost.rng import BitSource
from parties.errors import Disagreement


def commitment(run_id: str, party: str, random: bytes) -> bytes:
    """Hash commitment of a worker to its random bytes, 32 bytes."""
    return hashlib.sha256(repr(("opboost commitment", run_id, party, random)).encode()).digest()


def drawing_digest(run_id: str, names: tuple[str, ...], commitments: NDArray[np.uint8]) -> bytes:
    """Digest that identifies a drawing of public bits, 32 bytes: commitments determine the bits."""
    text = repr(("opboost drawing", run_id, names)).encode()
    return hashlib.sha256(text + np.ascontiguousarray(commitments).tobytes()).digest()


def public_bits(
    run_id: str, names: tuple[str, ...], commitments: NDArray[np.uint8], random: NDArray[np.uint8]
) -> BitSource:
    """Public bits derived from the random bytes of all workers.

    Uniform if one worker's bytes are, except that whoever reveals last may leave instead, which ends the run.

    Parameters
    ----------
    run_id : str
    names : tuple of str
        Of the workers, in the order of the rows.
    commitments, random : ndarray of uint8, shape (n_workers, 32)

    Raises
    ------
    Disagreement
        If bytes are not those that their worker was committed to.
    """
    if commitments.shape != (len(names), 32) or random.shape != commitments.shape:
        raise Disagreement("the random bytes of the workers do not fit their commitments. Nothing was released")
    for name, row, committed in zip(names, random, commitments, strict=True):
        if commitment(run_id, name, row.tobytes()) != committed.tobytes():
            raise Disagreement(f"the random bytes of {name} are not those it was committed to. Nothing was released")
    key = hashlib.sha256(repr(("opboost public bits", run_id, names)).encode() + random.tobytes()).digest()
    return BitSource(key, is_secure=False)
