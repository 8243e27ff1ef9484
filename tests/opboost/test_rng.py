"""Where random bits come from: one stream per key, independent forks, and nothing drawn twice."""

from __future__ import annotations

import copy
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from opboost.errors import ParameterError
from opboost.rng import BitSource, secure, seeded
from tests.support.processes import in_a_fork

# A uniform stream fails a test below this p-value once in a million runs; the seeds are fixed besides.
FALSE_ALARM = 1e-6

N_WORDS = 100_000


def n_equal_bits(one: np.ndarray, other: np.ndarray) -> int:
    return int(np.bitwise_count(~(one ^ other)).sum())


@given(st.integers(-(2**70), 2**70))
@settings(max_examples=30, deadline=None)
def test_a_seed_names_a_stream_that_can_be_drawn_again(seed):
    assert (seeded(seed).words(100) == seeded(seed).words(100)).all()


def test_seeds_that_differ_name_streams_that_differ():
    words = [seeded(seed).words(1)[0] for seed in range(1000)]
    assert len(set(words)) == 1000


@given(st.lists(st.integers(1, 50), min_size=1, max_size=10))
@settings(max_examples=50, deadline=None)
def test_the_stream_does_not_depend_on_how_many_words_are_asked_for_at_a_time(counts):
    rng = seeded(7)
    pieces = np.concatenate([rng.words(count) for count in counts])
    assert (pieces == seeded(7).words(sum(counts))).all()


def test_no_word_can_be_asked_for():
    rng = seeded(1)
    assert rng.words(0).tolist() == []
    assert rng.words(1) == seeded(1).words(1)


def test_words_are_uniform():
    """Chi-square over the 256 values of each of the eight bytes of 100,000 words; see `FALSE_ALARM`."""
    for column in seeded(11).words(N_WORDS).view(np.uint8).reshape(-1, 8).T:
        assert chisquare(np.bincount(column, minlength=256)).pvalue > FALSE_ALARM


def test_words_with_one_rare_byte_are_caught():
    """The same test on a stream whose byte 0 is replaced by 1 in one word of 300."""
    column = seeded(11).words(N_WORDS).view(np.uint8)[::8].copy()
    column[::300] = 1
    assert chisquare(np.bincount(column, minlength=256)).pvalue < FALSE_ALARM


@pytest.mark.parametrize(
    "pair",
    [
        (seeded(1).fork("a"), seeded(1).fork("b")),
        (seeded(1), seeded(1).fork("a")),
        (seeded(1).fork("a"), seeded(2).fork("a")),
        (seeded(1).fork("a").fork("b"), seeded(1).fork("b").fork("a")),
        (seeded(1).fork("a").fork("b"), seeded(1).fork("ab")),
    ],
    ids=["siblings", "parent and child", "same label of two seeds", "swapped labels", "joined labels"],
)
def test_forks_are_independent(pair):
    """Of 6.4 million bits half agree, within what a fair coin exceeds once in a million runs; the seeds are fixed."""
    n_bits = 64 * N_WORDS
    n_equal = n_equal_bits(*(rng.words(N_WORDS) for rng in pair))
    assert binom.ppf(FALSE_ALARM, n_bits, 0.5) < n_equal < binom.ppf(1 - FALSE_ALARM, n_bits, 0.5)


def test_two_streams_that_share_one_word_in_a_hundred_are_caught_by_the_same_count():
    one, other = seeded(1).words(N_WORDS), seeded(2).words(N_WORDS)
    other[::100] = one[::100]
    assert n_equal_bits(one, other) > binom.ppf(1 - FALSE_ALARM, 64 * N_WORDS, 0.5)


def test_a_fork_depends_on_its_label_alone_and_not_on_what_was_drawn_before():
    early, late = seeded(3), seeded(3)
    late.words(1000)
    late.fork("first")
    assert (early.fork("second").words(10) == late.fork("second").words(10)).all()


def test_a_fork_takes_nothing_from_its_parents_stream():
    rng = seeded(3)
    rng.fork("column 1").words(10)
    assert rng.words(1) == seeded(3).words(1)


def test_a_label_is_refused_the_second_time_because_bits_must_not_be_drawn_again():
    rng = seeded(3)
    rng.fork("age")
    with pytest.raises(ParameterError, match="'age' was opened before"):
        rng.fork("age")
    rng.fork("income").fork("age")


def test_secure_sources_differ_and_their_forks_are_flagged_secure():
    one, other = secure(), secure()
    assert one.is_secure
    assert one.fork("age").is_secure
    assert (one.words(4) != other.words(4)).all()


def test_seeded_sources_and_their_forks_are_flagged_as_not_secure():
    assert not seeded(1).is_secure
    assert not seeded(1).fork("age").is_secure


@pytest.mark.parametrize("n_bytes", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused_and_not_shown(n_bytes):
    with pytest.raises(ParameterError, match=f"key of 32 bytes; got {n_bytes}") as caught:
        BitSource(b"K" * n_bytes, is_secure=True)
    assert "KKKK" not in str(caught.value)


def test_the_key_is_not_shown():
    assert repr(BitSource(b"K" * 32, is_secure=True)) == "BitSource(is_secure=True)"


def drawn_by_threads(source: BitSource, n_threads: int, n_calls: int, n_words: int) -> np.ndarray:
    """All words that so many threads draw at the same time."""
    begin = threading.Barrier(n_threads)

    def draw(_: int) -> list[np.ndarray]:
        begin.wait()
        return [source.words(n_words) for _ in range(n_calls)]

    with ThreadPoolExecutor(n_threads) as pool:
        return np.concatenate([words for found in pool.map(draw, range(n_threads)) for words in found])


def test_threads_never_draw_the_same_word() -> None:
    """A million words differ by chance in all but one of 10^7 runs."""
    words = drawn_by_threads(secure(), n_threads=4, n_calls=64, n_words=4096)
    assert len(np.unique(words)) == len(words)


class SlowCipher:
    """A key stream whose place is read long before it is moved on, as by a cipher that lets other threads run."""

    def __init__(self) -> None:
        self.place = 0

    def update_into(self, text: memoryview, output: memoryview) -> None:
        place, n_words = self.place, len(text) // 8
        time.sleep(0.001)
        output[:] = np.arange(place, place + n_words).view(np.uint8).tobytes()
        self.place = place + n_words


@pytest.mark.parametrize("is_locked", [True, False])
def test_the_lock_alone_keeps_threads_apart(is_locked: bool) -> None:
    source = secure()
    source._stream = SlowCipher()
    if not is_locked:
        source._lock = nullcontext()
    words = drawn_by_threads(source, n_threads=2, n_calls=20, n_words=4)
    assert (len(np.unique(words)) == len(words)) == is_locked


def test_one_of_several_threads_opens_a_stream() -> None:
    for trial in range(200):
        source, begin = seeded(trial), threading.Barrier(4)

        def opens(_: int, source: BitSource = source, begin: threading.Barrier = begin) -> bool:
            begin.wait()
            try:
                source.fork("age")
            except ParameterError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(opens, range(4))) == 1


CALLS_IN_A_CHILD = {
    "words": lambda source: source.words(2).tolist(),
    "no words": lambda source: source.words(0).tolist(),
    "a stream": lambda source: source.fork("age").words(2).tolist(),
    "a stream opened before": lambda source: BEFORE[source].words(2).tolist(),
}
BEFORE: dict[BitSource, BitSource] = {}


@pytest.mark.parametrize("call", CALLS_IN_A_CHILD.values(), ids=list(CALLS_IN_A_CHILD))
@pytest.mark.parametrize("make", [secure, lambda: seeded(5)], ids=["secure", "seeded"])
def test_a_forked_process_draws_nothing_from_a_source_of_its_parent(make, call) -> None:
    source = make()
    BEFORE[source] = source.fork("opened before")
    assert in_a_fork(lambda: call(source)).startswith("ParameterError: this bit source was made in another process")
    assert len(call(source)) in (0, 2)


def test_without_the_comparison_of_processes_parent_and_child_would_draw_the_same_words() -> None:
    source = secure()

    def as_if_it_were_its_own() -> list[int]:
        source._process = os.getpid()
        return source.words(4).tolist()

    assert in_a_fork(as_if_it_were_its_own) == repr(source.words(4).tolist())


def test_a_forked_process_makes_a_source_of_its_own() -> None:
    secure().words(1)
    assert in_a_fork(lambda: secure().words(4).tolist()) != in_a_fork(lambda: secure().words(4).tolist())
    assert in_a_fork(lambda: seeded(3).words(4).tolist()) == repr(seeded(3).words(4).tolist())


def test_a_child_is_refused_and_does_not_wait_where_a_thread_of_its_parent_was_drawing() -> None:
    source = secure()
    with source._lock:
        assert in_a_fork(lambda: source.words(1)).startswith("ParameterError")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_source_cannot_be_copied(copied) -> None:
    with pytest.raises(ParameterError, match="cannot be copied"):
        copied(secure())


@given(st.integers(0, 2**32), st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 4))
def test_parts_that_draw_round_by_round_draw_what_one_would(seed: int, lengths: list[int], n_rounds: int) -> None:
    parts = seeded(seed).fork_divided("coins", lengths)
    drawn = [part.words(length) for _ in range(n_rounds) for part, length in zip(parts, lengths, strict=True)]
    assert (np.concatenate(drawn) == seeded(seed).fork("coins").words(n_rounds * sum(lengths))).all()
    # A copy draws the same, and the stream is nobody else's.
    again = copy.copy(parts[-1])
    assert (again.words(lengths[-1]) == parts[-1].words(lengths[-1])).all()
    assert "key" not in repr(again)
    with pytest.raises(ParameterError, match="nothing was drawn"):
        again.words(lengths[-1] + 1)
    source = seeded(seed)
    source.fork_divided("coins", lengths)
    with pytest.raises(ParameterError, match="was opened before"):
        source.fork("coins")
