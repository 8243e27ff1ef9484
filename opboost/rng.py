"""Random bit sources: secure ones, and seeded ones for tests and simulations.

One construction serves both cases: an AES-256 key stream in counter mode. `secure` takes its key from the operating
system; `seeded` derives it from a number, for tests and simulations, and is flagged so that no guarantee can rest
on it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Lock
from typing import Any, NoReturn, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from opboost.errors import ParameterError


def _key_stream(key: bytes, *, first_block: int = 0) -> CipherContext:
    """AES in counter mode: what it encrypts is added to the key stream, from this block of 16 bytes on."""
    return Cipher(algorithms.AES(key), modes.CTR(first_block.to_bytes(16, "big"))).encryptor()


class BitSource:
    """A stream of uniform 64-bit words.

    Parameters
    ----------
    key : bytes
        32 bytes.
    is_secure : bool
        Whether the key came from the operating system's entropy and nobody else knows it.

    Notes
    -----
    The stream depends on the key alone, not on how many words are asked for at a time. `fork` gives an independent
    stream, so work can be divided among columns or threads without the result depending on the division.

    No bits are drawn twice: threads that share a source take turns, a process that was forked from the source's own is
    refused, and so are copies.
    """

    __slots__ = ("_forks", "_key", "_lock", "_process", "_stream", "is_secure")

    def __init__(self, key: bytes, *, is_secure: bool) -> None:
        if len(key) != 32:
            raise ParameterError(f"a bit source needs a key of 32 bytes; got {len(key)}")
        self._key = key
        self._stream = _key_stream(key)
        self._forks: set[str] = set()
        self._lock = Lock()
        self._process = os.getpid()
        self.is_secure = is_secure

    def __repr__(self) -> str:
        return f"BitSource(is_secure={self.is_secure})"

    def __reduce__(self) -> NoReturn:
        raise ParameterError("a bit source cannot be copied: both would draw the same bits")

    def check_process(self) -> None:
        """Refuse a process that was forked from the source's own; for those who keep what they drew ahead.

        Raises
        ------
        ParameterError
        """
        if os.getpid() != self._process:
            raise ParameterError(
                "this bit source was made in another process, of which this one is a copy: both would draw the same "
                "bits. Make a source in each process; nothing was drawn"
            )

    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw the next `count` words, shape ``(count,)``.

        Raises
        ------
        ParameterError
            In a process that was forked from the source's own.
        """
        self.check_process()
        out = np.zeros(count, np.uint64)
        view = memoryview(out).cast("B")
        with self._lock:
            self._stream.update_into(view, view)
        return out

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """Draw uniform numbers in [0, 1), multiples of 2**-53, shape ``(count,)``."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def fork(self, label: str) -> BitSource:
        """Open an independent stream, named by `label`. No label serves twice: bits must never be drawn again."""
        self.check_process()
        with self._lock:
            if label in self._forks:
                raise ParameterError(
                    f"the stream {label!r} was opened before; its bits must not be drawn a second time"
                )
            self._forks.add(label)
        key = hashlib.blake2b(label.encode(), key=self._key, person=b"opboost fork", digest_size=32).digest()
        return BitSource(key, is_secure=self.is_secure)

    def fork_divided(self, label: str, lengths: Sequence[int]) -> list[RepeatableWords]:
        """Open an independent stream for parts that draw so many words each, round by round, as one source would."""
        key, total = self.fork(label)._key, sum(lengths)
        starts = [0, *accumulate(lengths)][: len(lengths)]
        return [RepeatableWords(key, start, length, total) for start, length in zip(starts, lengths, strict=True)]


class Words(Protocol):
    """Uniform 64-bit words, drawn one after the other."""

    def words(self, count: int, /) -> NDArray[np.uint64]: ...


@dataclass(slots=True)
class RepeatableWords:
    """A part's words of a stream in every round, for work that may be done again: a copy draws the same ones.

    Attributes
    ----------
    key : bytes
    start : int
        The place in the stream of the next round's first word.
    length, total : int
        Words of this part, and of all parts, in a round.
    """

    key: bytes = field(repr=False)
    start: int
    length: int
    total: int

    def words(self, count: int, /) -> NDArray[np.uint64]:
        """Draw the words of the next round, which are as many as the part has.

        Raises
        ------
        ParameterError
        """
        if count != self.length:
            raise ParameterError(f"{count} words were asked for of a part that draws {self.length}; nothing was drawn")
        # A block of the cipher is two words.
        stream = _key_stream(self.key, first_block=self.start // 2)
        drawn = np.frombuffer(stream.update(bytes(8 * (count + self.start % 2))), np.uint64)
        drawn = drawn[self.start % 2 :]
        self.start += self.total
        return drawn


class DrawnAhead:
    """Random numbers drawn ahead by the thousand, since a draw of a few takes as long.

    No number is handed out twice: threads take turns, and a process that was forked from the source's own is refused.

    Parameters
    ----------
    draw : callable
        Draws so many numbers from `rng`.
    rng : BitSource
    n_ahead : int
        Numbers of one draw.
    """

    def __init__(self, draw: Callable[[int], NDArray[Any]], rng: BitSource, *, n_ahead: int) -> None:
        self._draw = draw
        self._rng = rng
        self._n_ahead = n_ahead
        self._left = draw(0)
        self._lock = Lock()

    def take(self, count: int) -> NDArray[Any]:
        """The next `count` numbers, shape ``(count,)``."""
        self._rng.check_process()
        with self._lock:
            if len(self._left) < count:
                self._left = np.concatenate([self._left, self._draw(max(count, self._n_ahead))])
            taken, self._left = self._left[:count], self._left[count:]
        return taken


def secure() -> BitSource:
    """Bits for releases: the key comes from the operating system and is forgotten with the source."""
    return BitSource(secrets.token_bytes(32), is_secure=True)


def seeded(seed: int) -> BitSource:
    """Bits that can be drawn again, for tests and simulations. Nothing drawn from them may be released."""
    key = hashlib.blake2b(str(int(seed)).encode(), person=b"opboost seed", digest_size=32).digest()
    return BitSource(key, is_secure=False)
