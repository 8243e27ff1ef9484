"""Primitives of secure aggregation: pairwise keys, mask streams, authenticated encryption.

Nothing is written by hand: X25519, HKDF-SHA256, AES-256 in counter mode and ChaCha20-Poly1305 are those of
`cryptography`, HMAC-SHA256 is Python's.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from protocols.errors import SumRefused
from protocols.key_stream import key_stream
from protocols.transport.keys import KeyPair

# Numbers modulo 2**64; a signed sum that fits an int64 comes out as it is.
Vector = NDArray[np.uint64]

SEED_BYTES = 32

# Of an authentication tag.
TAG_BYTES = 16

# Of a confirmation, an HMAC-SHA256.
CONFIRMATION_BYTES = 32

# Of a share's digest, an HMAC-SHA256.
SHARE_DIGEST_BYTES = 32


def derive(secret: bytes, purpose: str, *context: bytes, n_bytes: int = SEED_BYTES) -> bytes:
    """A key for one purpose. The parts of the context are told apart by their lengths."""
    parts = (purpose.encode(), *context)
    info = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    return HKDF(SHA256(), n_bytes, b"opboost secure sum", info).derive(secret)


def mask(seed: bytes, length: int) -> Vector:
    """Expand a one-time seed of 32 bytes to a mask of uniform numbers."""
    out = np.zeros(length, "<u8")
    if length:
        view = memoryview(out).cast("B")
        key_stream(seed).update_into(view, view)
    return out


def pair_mask(seed: bytes, about: bytes, length: int) -> Vector:
    """The mask of a pair of workers in a round, for what both were asked about: others' do not cancel."""
    return mask(hmac.digest(seed, about, "sha256"), length)


def add(total: Vector, part: Vector, *, is_plus: bool) -> None:
    """Add a mask to a vector in place, or take it away."""
    if is_plus:
        total += part
    else:
        total -= part


def seal(key: bytes, nonce: bytes, text: bytes, context: bytes) -> bytes:
    """Encrypt and authenticate; no nonce of 12 bytes may serve a key twice."""
    return ChaCha20Poly1305(key).encrypt(nonce, text, context)


def unseal(key: bytes, nonce: bytes, sealed: bytes, context: bytes) -> bytes:
    """The inverse of `seal`.

    Raises
    ------
    SumRefused
        If anything differs from what was sealed.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, sealed, context)
    except InvalidTag:
        raise SumRefused("a sealed share was altered, or is of another round or worker; nothing was revealed") from None


def confirmation(key: bytes, view: bytes) -> bytes:
    """The HMAC-SHA256 of what a worker was told, for the worker that it shares the key with."""
    return hmac.digest(key, view, "sha256")


def is_confirmation(key: bytes, view: bytes, found: bytes) -> bool:
    """Whether this is the other worker's `confirmation`, compared in constant time."""
    return hmac.compare_digest(confirmation(key, view), found)


def share_digest(share: bytes, context: bytes, holder: int) -> bytes:
    """The HMAC-SHA256 of whose share this is, with the share as the key.

    Parameters
    ----------
    share : bytes
    context : bytes
        What names the run, the round and the dealer.
    holder : int

    Notes
    -----
    Privacy: it tells whether a share is the one that was dealt, and nothing else. A share is 128 random bits. From the
    digests, and from fewer shares than the threshold, the others are found only by trying 2**128 secrets.
    """
    return hmac.digest(share, context + holder.to_bytes(4, "little"), "sha256")


@dataclass(frozen=True, slots=True)
class PairKeys:
    """Pairwise keys of two workers, 32 bytes each.

    Attributes
    ----------
    masks : bytes
        From which the pair's mask of every round comes.
    to_them, from_them : bytes
        For shares that one seals for the other.
    confirmations : bytes
        With which both authenticate what the coordinator told them.
    """

    masks: bytes = field(repr=False)
    to_them: bytes = field(repr=False)
    from_them: bytes = field(repr=False)
    confirmations: bytes = field(repr=False)


class OwnKey:
    """A worker's key of one run, and with `identity` the proof that it is this worker's.

    Parameters
    ----------
    identity : KeyPair, optional
        The worker's lasting key. Pairs then depend on both workers' lasting keys too, so that a coordinator which
        hands out keys of its own making shares no secret with anybody.
    """

    def __init__(self, identity: KeyPair | None = None) -> None:
        self._key = X25519PrivateKey.generate()
        self._identity = None if identity is None else X25519PrivateKey.from_private_bytes(identity.secret)
        self.public = self._key.public_key().public_bytes_raw()

    def pair(self, theirs: bytes, identity: bytes | None, *, run: bytes) -> PairKeys:
        """Agree on the keys of a pair.

        Parameters
        ----------
        theirs : bytes
            The other worker's public key of this run; one's own for what one seals for oneself.
        identity : bytes or None
            Its lasting public key, if this worker has one itself.
        run : bytes
            What names the run.

        Raises
        ------
        SumRefused
            If a key is no key, or only one of the two has a lasting one.
        """
        if (identity is None) != (self._identity is None):
            raise SumRefused("either all workers know each other's public keys or none does; nothing was sent")
        try:
            secret = self._key.exchange(X25519PublicKey.from_public_bytes(theirs))
            if self._identity is not None and identity is not None:
                secret += self._identity.exchange(X25519PublicKey.from_public_bytes(identity))
        # A point of small order, under which nothing would be secret, is refused by the library.
        except ValueError:
            raise SumRefused("a worker's key for secure aggregation is not valid; nothing was sent") from None
        return PairKeys(
            masks=derive(secret, "masks", run, *sorted((self.public, theirs))),
            to_them=derive(secret, "shares", run, self.public, theirs),
            from_them=derive(secret, "shares", run, theirs, self.public),
            confirmations=derive(secret, "confirmations", run, *sorted((self.public, theirs))),
        )


def is_usable(public: bytes) -> bool:
    """Whether workers can agree on a secret with the owner of this key; with one of low order nobody can."""
    try:
        OwnKey().pair(public, None, run=b"")
    except SumRefused:
        return False
    return True
