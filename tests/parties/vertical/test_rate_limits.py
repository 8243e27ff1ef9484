"""Limits of what is answered: exact counts, kept over restarts, shared by processes, and never renewed by a clock."""

from __future__ import annotations

import stat
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parties.config.serve_section import ServeSection
from parties.errors import LedgerError
from parties.vertical.rate_limits import DAY_S, Allowance, allowance_path, counts_state
from tests.support.processes import FORKS

NOON = 20_000 * DAY_S + DAY_S // 2


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_allowance(tmp_path: Path, clock: Clock) -> Callable[..., Allowance]:
    def make(peer: str = "bank", **limits: int) -> Allowance:
        return Allowance(tmp_path / "ledger.sqlite", ServeSection(**limits), peer, clock=clock)

    return make


def known(n_rows: int) -> np.ndarray:
    return np.ones(n_rows, np.bool_)


def take(allowance: Allowance, is_known: np.ndarray, *, bits_each: int) -> tuple[int, int]:
    """Of a request, how many records the rate allows, and how many of the known ones among these are answered."""
    n_taken = allowance.take_records(len(is_known))
    return n_taken, allowance.take_bits(int(is_known[:n_taken].sum()), bits_each=bits_each)


def test_the_counts_lie_beside_the_ledger_for_their_owner_alone(tmp_path: Path) -> None:
    ledger = tmp_path / "runs" / "ledger.sqlite"
    path = allowance_path(ledger)
    with Allowance(ledger, ServeSection(routed_bits_per_day=1), "bank"):
        assert path == tmp_path / "runs" / "ledger.served.sqlite"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(LedgerError, match="must be readable by its owner alone"):
        Allowance(ledger, ServeSection(routed_bits_per_day=1), "bank")


def test_a_link_to_a_ledger_has_the_counts_of_the_ledger(tmp_path: Path, clock: Clock) -> None:
    """Each of two files beside ledger and link counted as the loss of the other one."""
    link, limits = tmp_path / "linked" / "ledger.sqlite", ServeSection(routed_bits_per_day=10)
    link.parent.mkdir()
    link.symlink_to(tmp_path / "ledger.sqlite")
    for ledger, n_paid in ((tmp_path / "ledger.sqlite", 4), (link, 4), (tmp_path / "ledger.sqlite", 2)):
        with Allowance(ledger, limits, "bank", clock=clock) as allowance:
            assert not allowance.is_lost
            assert take(allowance, known(4), bits_each=1) == (4, n_paid)


def test_a_day_has_so_many_bits_and_unknown_records_cost_none(
    open_allowance: Callable[..., Allowance], clock: Clock
) -> None:
    with open_allowance(routed_bits_per_day=100) as allowance:
        assert take(allowance, np.array([True, False, True]), bits_each=30) == (3, 2)
        assert take(allowance, known(5), bits_each=30) == (5, 1)
        assert take(allowance, known(5), bits_each=30) == (5, 0)
        assert take(allowance, known(5), bits_each=10) == (5, 1)
        assert take(allowance, known(5), bits_each=0) == (5, 5)
        clock.now = NOON + DAY_S // 2 - 0.01
        assert take(allowance, known(1), bits_each=1) == (1, 0)
        clock.now = NOON + DAY_S // 2
        assert take(allowance, known(5), bits_each=30) == (5, 3)


def test_a_restart_renews_nothing(open_allowance: Callable[..., Allowance]) -> None:
    for expected in ((3, 3), (1, 1), (0, 0)):
        with open_allowance(records_per_minute=4, routed_bits_per_day=1000) as allowance:
            assert take(allowance, known(3), bits_each=10) == expected


@pytest.mark.parametrize("how", ["removed", "emptied", "begun anew elsewhere"])
def test_a_file_of_counts_that_is_gone_renews_nothing(
    open_allowance: Callable[..., Allowance], clock: Clock, tmp_path: Path, how: str
) -> None:
    """The day's bits are spent, and the minute's records; the next day begins as ever."""
    limits, path = {"records_per_minute": 9, "routed_bits_per_day": 100}, tmp_path / "ledger.served.sqlite"
    with open_allowance(**limits) as allowance:
        assert take(allowance, known(2), bits_each=10) == (2, 2)
        assert not allowance.is_lost
    if how == "emptied":
        path.write_bytes(b"")
    elif how == "begun anew elsewhere":
        (tmp_path / "elsewhere").mkdir()
        Allowance(tmp_path / "elsewhere" / "ledger.sqlite", ServeSection(**limits), "bank", clock=clock).__exit__()
        path.write_bytes((tmp_path / "elsewhere" / path.name).read_bytes())
    else:
        path.unlink()
    with open_allowance(**limits) as allowance:
        assert allowance.is_lost
        assert take(allowance, known(1), bits_each=1) == (0, 0)
    clock.now += 62
    with open_allowance(**limits) as allowance:
        assert not allowance.is_lost
        assert take(allowance, known(1), bits_each=1) == (1, 0)
    clock.now += DAY_S
    with open_allowance(**limits) as allowance:
        assert take(allowance, known(2), bits_each=10) == (2, 2)


@pytest.mark.parametrize("is_open", [True, False])
def test_the_state_of_counts_is_looked_at_and_nothing_is_changed(tmp_path: Path, clock: Clock, is_open: bool) -> None:
    ledger, limits = tmp_path / "ledger.sqlite", ServeSection(records_per_minute=9)
    assert counts_state(ledger, "bank", clock=clock) == (False, 0)
    assert not list(tmp_path.iterdir())
    allowance = Allowance(ledger, limits, "bank", clock=clock)
    take(allowance, known(2), bits_each=1)
    if not is_open:
        allowance.__exit__()
    clock.now -= 7
    for _ in range(2):
        assert counts_state(ledger, "bank", clock=clock) == (False, 7)
        assert counts_state(ledger, "other", clock=clock) == (False, 0)
    allowance.__exit__()
    allowance_path(ledger).unlink()
    for _ in range(2):
        assert counts_state(ledger, "bank", clock=clock) == (True, 0)
    assert [one.name for one in tmp_path.iterdir()] == ["ledger.sqlite"]
    with Allowance(ledger, limits, "bank", clock=clock) as lost:
        assert lost.is_lost


def test_each_active_party_has_counts_of_its_own(open_allowance: Callable[..., Allowance]) -> None:
    for peer in ("bank", "shop"):
        with open_allowance(peer, records_per_minute=4, routed_bits_per_day=10) as allowance:
            assert take(allowance, known(9), bits_each=10) == (4, 1)


@pytest.mark.parametrize("back_s", [1, 61, 2 * DAY_S])
def test_a_clock_that_is_put_back_renews_nothing(
    open_allowance: Callable[..., Allowance], clock: Clock, back_s: int
) -> None:
    limits = {"records_per_minute": 6, "routed_bits_per_day": 50}
    with open_allowance(**limits) as allowance:
        assert take(allowance, known(5), bits_each=10) == (5, 5)
        assert allowance.seconds_behind() == 0
    clock.now = NOON - back_s
    with open_allowance(**limits) as allowance:
        assert allowance.seconds_behind() == back_s
        assert take(allowance, known(5), bits_each=10) == (1, 0)
        clock.now = NOON + DAY_S
        assert take(allowance, known(5), bits_each=10) == (5, 5)


@given(
    steps=st.lists(st.tuples(st.floats(-90, 90), st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=25),
    per_minute=st.integers(1, 20),
    per_day=st.integers(1, 60),
)
@settings(max_examples=25, deadline=None)
def test_no_sixty_seconds_and_no_day_ever_give_more(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[float, int, int]], per_minute: int, per_day: int
) -> None:
    """Against a list of everything that was given, at the latest time that the clock ever showed."""
    clock, latest = Clock(NOON), 0.0
    given_records: list[tuple[float, int]] = []
    given_bits: dict[int, int] = {}
    path = tmp_path_factory.mktemp("served") / "s.sqlite"
    limits = ServeSection(records_per_minute=per_minute, routed_bits_per_day=per_day)
    with Allowance(path, limits, "bank", clock=clock) as allowance:
        for step_s, n_rows, bits_each in steps:
            clock.now += step_s * (1 if n_rows else DAY_S / 100)
            latest = max(latest, clock.now)
            n_taken, n_paid = take(allowance, known(n_rows), bits_each=bits_each)
            assert 0 <= n_paid <= n_taken <= n_rows
            given_records.append((latest, n_taken))
            day = int(latest // DAY_S)
            given_bits[day] = given_bits.get(day, 0) + n_paid * bits_each
            assert sum(n for when, n in given_records if latest - when < 60) <= per_minute
            assert given_bits[day] <= per_day
            # What was refused was refused for a reason.
            recent = sum(n for when, n in given_records if latest - when < 62)
            assert n_taken == n_rows or recent >= per_minute
            assert n_paid == n_taken or given_bits[day] + bits_each > per_day


def take_many(path: str, pipe: Connection) -> None:
    """One process that takes what it can get, a record at a time."""
    with Allowance(Path(path), ServeSection(routed_bits_per_day=1000), "bank", clock=lambda: NOON) as allowance:
        pipe.send("open")
        pipe.recv()
        pipe.send(sum(take(allowance, known(1), bits_each=10)[1] for _ in range(80)))


def test_two_processes_cannot_both_spend_the_last_bits(tmp_path: Path) -> None:
    pipes, processes = [], []
    for _ in range(2):
        mine, theirs = FORKS.Pipe()
        process = FORKS.Process(target=take_many, args=(str(tmp_path / "s.sqlite"), theirs), daemon=True)
        process.start()
        pipes.append(mine)
        processes.append(process)
    for pipe in pipes:
        assert pipe.poll(30)
        assert pipe.recv() == "open"
    for pipe in pipes:
        pipe.send("go")
    for pipe in pipes:
        assert pipe.poll(60)
    found = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join(10)
    assert sum(found) == 100
    assert all(n >= 20 for n in found)
