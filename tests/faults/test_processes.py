"""Real processes of the command under faults from outside: each ends in time, with a sentence and no traceback."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from numba import set_num_threads

from parties.ledger.release_ledger import Ledger
from tests.support.processes import FORKS

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

TIMEOUT_S = 1.0


def run_command(arguments: list[str], said: str, faults: dict[str, float]) -> None:
    """The console command in this process, its output in a file, under the faults that are named."""
    descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.environ["COLUMNS"] = "500"
    set_num_threads(1)
    for name, number in faults.items():
        FAULTS[name](number)
    sys.argv = ["opboost", *arguments]
    from parties.cli import main

    main()


def bounded_files(n_bytes: float) -> None:
    """No file may grow beyond so many bytes."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (int(n_bytes), int(n_bytes)))


def shifted_clock(seconds: float) -> None:
    """The clock of the day jumps, again and again, back and forth; the monotonic clock goes on."""
    import datetime as module

    class Jumping(module.datetime):
        n_looks = 0

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            Jumping.n_looks += 1
            jump = module.timedelta(seconds=seconds if Jumping.n_looks % 2 else 0)
            return module.datetime.fromtimestamp(real() + jump.total_seconds(), tz)

    real = time.time
    time.time = lambda: real() + seconds * (Jumping.n_looks % 2)
    for name, loaded in list(sys.modules.items()):
        if name.startswith("parties.") and getattr(loaded, "datetime", None) is module.datetime:
            loaded.datetime = Jumping  # type: ignore[attr-defined]


def bounded_descriptors(most: float) -> None:
    """The process may have so many descriptors if it asks for them, and half as many at first."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (int(most) // 2, int(most)))


FAULTS: dict[str, Callable[[float], None]] = {
    "files": bounded_files,
    "clock": shifted_clock,
    "descriptors": bounded_descriptors,
}


@dataclass
class Running:
    """One command: its process and what it said."""

    process: Any
    said: Path

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    @property
    def code(self) -> int:
        return int(self.process.exitcode)

    @property
    def words(self) -> str:
        return self.said.read_text() if self.said.exists() else ""

    def wait(self, seconds: float = 30) -> None:
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still running after {seconds} s: {self.words}"


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Start a site's command; whatever still runs at the end of the test is killed."""
    started: list[Running] = []

    def begin(site: Any, command: str = "", **faults: float) -> Running:
        command = command or {"bank": "party-a", "shop": "party-b"}[site.party]
        said = site.path / f"said-{len(started)}.txt"
        process = FORKS.Process(target=run_command, args=([command, str(site.write())], str(said), faults))
        process.start()
        started.append(Running(process, said))
        return started[-1]

    yield begin
    for running in started:
        running.process.kill()
        running.process.join(10)


def assert_told(running: Running, words: str = "") -> None:
    """It failed, and its last line is one sentence."""
    assert running.code not in (0, None), running.words
    assert "Traceback" not in running.words
    last = running.words.splitlines()[-1]
    assert last.startswith("error: "), running.words
    assert words in last


def assert_sound(sites: Any) -> None:
    """Nothing half written lies about, the ledger can be verified, and no column was drawn twice."""
    for site in (sites.bank, sites.shop):
        assert [path for path in site.path.rglob("*") if path.suffix in (".partial", ".tmp")] == []
    path = sites.shop.path / "runs" / "ledger.sqlite"
    if path.exists():
        with Ledger(path) as ledger:
            assert max(ledger.sums.n_releases.values(), default=0) <= 1
            assert ledger.n_stored <= 2
            ledger.verify()


def assert_finishes(sites: Any, start: Any) -> None:
    """Started again without a fault, both sides finish."""
    for site in (sites.bank, sites.shop):
        site.run.update(wait=20, timeout=5)
    both = [start(sites.bank), start(sites.shop)]
    for running in both:
        running.wait()
    assert [running.code for running in both] == [0, 0], [running.words for running in both]
    for site in (sites.bank, sites.shop):
        assert json.loads((site.run_folder / "meta.json").read_text())["finished"] is not None
    assert_sound(sites)


def log_of(site: Any) -> str:
    path = site.run_folder / "log.jsonl"
    return path.read_text() if path.exists() else ""


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"nothing happened for {seconds} s"
        time.sleep(0.005)


class Relay:
    """A TCP relay between the parties, which forwards, delays, trickles, alters or swallows what it is given."""

    def __init__(self, target: str) -> None:
        self._target = ("127.0.0.1", int(target.rpartition(":")[2]))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self.is_silent = False
        self.is_cut = False
        self.piece, self.pause_s = 1 << 16, 0.0
        self.alter: Callable[[bytes, int], bytes] = lambda data, position: data
        self.n_connections = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near = self._server.accept()[0]
                self.n_connections += 1
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.close()
                    continue
                self._sockets += [near, far]
                for ends in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_there: bool) -> None:
        position = 0
        with suppress(OSError):
            while data := source.recv(self.piece):
                if self.pause_s:
                    time.sleep(self.pause_s)
                if self.is_silent:
                    continue
                sink.sendall(self.alter(data, position) if is_there else data)
                position += len(data)
                if self.is_cut:
                    break
        for end in (source, sink):
            # Half open: nobody is told that the connection is gone.
            if not self.is_silent:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
        for end in self._sockets:
            end.close()


@pytest.fixture
def relay(sites: Any) -> Iterator[Relay]:
    with ExitStack() as stack:
        relay = Relay(sites.bank.run["listen"])
        stack.callback(relay.close)
        sites.shop.run["connect"] = relay.address
        yield relay


def hurry(sites: Any, **changes: Any) -> None:
    for site in (sites.bank, sites.shop):
        site.run.update({"timeout": TIMEOUT_S, "wait": 5, **changes})


def test_a_party_that_stops_shorter_than_the_timeout_does_no_harm(sites: Any, start: Any) -> None:
    hurry(sites, timeout=4)
    bank, shop = start(sites.bank), start(sites.shop)
    for running, site, sign in ((bank, sites.bank, "received hello"), (shop, sites.shop, "sent offer")):
        event, _, kind = sign.partition(" ")
        wait_for(
            lambda site=site, event=event, kind=kind: f'"event": "{event}"' in log_of(site) and kind in log_of(site)
        )
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGSTOP)
            time.sleep(0.7)
            os.kill(running.pid, signal.SIGCONT)
    for running in (bank, shop):
        running.wait()
    assert (bank.code, shop.code) == (0, 0), bank.words + shop.words
    assert_sound(sites)


def test_a_line_that_trickles_carries_the_run(sites: Any, start: Any, relay: Relay) -> None:
    """A connection of 100 bytes at a time and 20 kB/s, on which no heartbeat may be missed."""
    hurry(sites)
    relay.piece, relay.pause_s = 100, 0.005
    bank, shop = start(sites.bank), start(sites.shop)
    for running in (bank, shop):
        running.wait()
    assert (bank.code, shop.code) == (0, 0), bank.words + shop.words
    assert_sound(sites)


@pytest.mark.parametrize("fault", ["half open", "cut"])
def test_a_line_that_dies_in_mid_run_ends_both_sides(sites: Any, start: Any, relay: Relay, fault: str) -> None:
    """Half open: the line is there, and nothing comes through; no end of a connection is ever told."""
    hurry(sites, wait=3)
    # Trees at once: a peer that is lost in the fit of noise correction is noticed in the first round.
    sites.bank.run["correct_noise"] = False
    sites.bank.run["model"] = {"n_estimators": 1_000_000, "max_depth": 6}
    bank, shop = start(sites.bank), start(sites.shop)
    wait_for(lambda: log_of(sites.bank).count('"rank chunk"') == 2)
    if fault == "half open":
        relay.is_silent = True
    else:
        relay.is_cut = True
    struck = time.monotonic()
    for running in (bank, shop):
        running.wait(10)
    # Either side waits for the line to come back; up to 1 s of that may have passed between two looks before.
    assert 2 <= time.monotonic() - struck < 3 + 2 * TIMEOUT_S + 3
    lost = "closed the connection or was silent for 1 s, and"
    assert_told(bank, f"shop {lost} did not come back within 3 s, while this party was growing trees")
    assert_told(shop, f"bank {lost} could not be reached again within 3 s, while this party was waiting for the trees")
    assert_sound(sites)


@pytest.mark.parametrize("position", [70, 1500])
def test_a_line_that_turns_a_bit_ends_or_repeats_the_connection_and_the_run_goes_on(
    sites: Any, start: Any, relay: Relay, position: int
) -> None:
    """In the handshake of CURVE and in the messages: never read as something else."""
    hurry(sites)
    is_done = [False]

    def alter(data: bytes, at: int) -> bytes:
        if is_done[0] or not at <= position < at + len(data):
            return data
        is_done[0] = True
        changed = bytearray(data)
        changed[position - at] ^= 4
        return bytes(changed)

    relay.alter = alter
    bank, shop = start(sites.bank), start(sites.shop)
    for running in (bank, shop):
        running.wait(15)
    assert is_done[0]
    assert "Traceback" not in bank.words + shop.words
    if (bank.code, shop.code) != (0, 0):
        for running in (bank, shop):
            assert_told(running)
        assert_sound(sites)
        assert_finishes(sites, start)
    assert_sound(sites)


def test_the_same_run_started_twice_is_refused_the_second_time(sites: Any, start: Any) -> None:
    hurry(sites, timeout=10, wait=30)
    bank = start(sites.bank)
    wait_for(lambda: "listening" in log_of(sites.bank))
    second = start(sites.bank)
    second.wait()
    assert_told(second, f"another process works on the run in {sites.bank.run_folder} now. Nothing was sent")
    assert second.said.read_text().count("\n") == 1
    shops = [start(sites.shop), start(sites.shop)]
    for running in (bank, *shops):
        running.wait()
    assert bank.code == 0, bank.words
    # Whichever came second was refused, or found the run finished.
    assert 0 in [running.code for running in shops]
    for running in shops:
        if running.code:
            assert_told(running, "another process ")
    assert_sound(sites)


@pytest.mark.parametrize(("number", "sign"), [(signal.SIGTERM, "rank chunk"), (signal.SIGINT, "connecting")])
def test_whoever_is_told_to_stop_says_so_and_tells_the_other_one(
    sites: Any, start: Any, number: int, sign: str
) -> None:
    hurry(sites, wait=10)
    sites.bank.run["model"] = {"n_estimators": 1_000_000, "max_depth": 6}
    both = {site.party: start(site) for site in (sites.bank, sites.shop) if sign != "connecting" or site is sites.shop}
    wait_for(lambda: log_of(sites.shop).count(sign) >= 1)
    os.kill(both["shop"].pid, number)
    for running in both.values():
        running.wait(10)
        assert_told(running)
    assert both["shop"].code == 128 + number
    assert both["shop"].words.splitlines()[-1] == "error: this party was told to stop"
    assert '"event": "failed", "message": "this party was told to stop"' in log_of(sites.shop)
    if "bank" in both:
        assert "it was told to stop" in both["bank"].words.splitlines()[-1]
    assert_sound(sites)


@pytest.mark.parametrize(("victim", "sizes"), [("bank", (500, 9000)), ("shop", (2000, 30_000))])
def test_files_that_may_not_grow_end_the_run_in_a_sentence(
    sites: Any, start: Any, victim: str, sizes: tuple[int, ...]
) -> None:
    """As on a disk that fills: SQLite, logs and all else fail where they want to grow beyond the limit."""
    hurry(sites, wait=2)
    n_failed = 0
    for n_bytes in sizes:
        faults = {victim: {"files": n_bytes}}
        both = {site.party: start(site, **faults.get(site.party, {})) for site in (sites.bank, sites.shop)}
        for running in both.values():
            running.wait()
            if running.code:
                assert_told(running)
        n_failed += both[victim].code != 0
        assert_sound(sites)
    assert n_failed
    assert_finishes(sites, start)


class Crowd:
    """Connects to an address over and over without a word, and holds on to each connection as long as it may."""

    def __init__(self, address: str, most: int) -> None:
        self._target, self._most = ("127.0.0.1", int(address.rpartition(":")[2])), most
        self._is_over = threading.Event()
        self.n_opened = 0
        self._thread = threading.Thread(target=self._come, daemon=True)
        self._thread.start()

    def _come(self) -> None:
        with ExitStack() as stack:
            held: list[socket.socket] = []
            while not self._is_over.wait(0.01):
                with suppress(OSError):
                    held.append(stack.enter_context(socket.create_connection(self._target, timeout=0.2)))
                    self.n_opened += 1
                for end in held[: -self._most]:
                    end.close()
                del held[: -self._most]

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(5)


def test_a_crowd_that_connects_and_says_nothing_takes_no_descriptor_that_the_run_needs(sites: Any, start: Any) -> None:
    """Twice as many connections as the bank may have descriptors, and more of them than that for as long as it runs."""
    hurry(sites, wait=100, timeout=5)
    sites.bank.run["model"] = {"n_estimators": 100, "max_depth": 4}
    bank = start(sites.bank, descriptors=160)
    wait_for(lambda: "listening" in log_of(sites.bank))
    with ExitStack() as stack:
        crowds = [Crowd(sites.bank.run["listen"], 320 // 4) for _ in range(4)]
        for crowd in crowds:
            stack.callback(crowd.close)
        wait_for(lambda: sum(crowd.n_opened for crowd in crowds) > 320, seconds=90)
        shop = start(sites.shop)
        for running in (bank, shop):
            running.wait(40)
    assert (bank.code, shop.code) == (0, 0), bank.words + shop.words
    assert "cut a connection off" in log_of(sites.bank)
    assert_sound(sites)


def test_a_clock_that_jumps_disturbs_nothing(sites: Any, start: Any) -> None:
    """Back and forth by ten years at every look: patience is measured by another clock."""
    hurry(sites)
    years = 10 * 365 * 86400.0
    bank, shop = start(sites.bank, clock=years), start(sites.shop, clock=-years)
    for running in (bank, shop):
        running.wait()
    assert (bank.code, shop.code) == (0, 0), bank.words + shop.words
    assert_sound(sites)
    times = [json.loads(line)["time"] for line in log_of(sites.shop).splitlines()]
    assert times != sorted(times), "the clock did not jump"
