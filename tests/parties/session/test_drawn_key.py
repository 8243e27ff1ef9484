"""A key that all parties draw together, which nobody chooses alone and which stays the same in all their runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pandas as pd
import pytest

from parties.errors import Disagreement, RunFolderError
from parties.session import drawn_key
from parties.session.drawn_key import draw_active, draw_passive, keep
from parties.vertical.held_out import places_of
from protocols.errors import ProtocolError, UnexpectedMessage
from protocols.messages.id_alignment import HeldOutShares
from protocols.transport.channel import Channel, expect
from protocols.transport.memory import memory_pair

Outcomes = Callable[..., dict[str, Any]]


def drawn(outcomes: Outcomes, tmp_path: Path, active: Callable[..., Any], passive: Callable[..., Any]) -> Any:
    for name in ("a", "b"):
        (tmp_path / name).mkdir(exist_ok=True, parents=True)
    near, far = memory_pair("bank", "shop")

    def closing(call: Callable[..., Any], channel: Channel, folder: Path) -> Any:
        try:
            return call(channel, folder)
        finally:
            channel.close()

    return outcomes(
        {
            "bank": lambda: closing(active, near, tmp_path / "a" / "kept.json"),
            "shop": lambda: closing(passive, far, tmp_path / "b" / "kept.json"),
        }
    )


def honest(channel: Channel, path: Path) -> bytes:
    return draw_active([channel], path)


def test_both_sides_draw_the_same_seed_and_the_same_again(outcomes: Outcomes, tmp_path: Path) -> None:
    first, again = (drawn(outcomes, tmp_path, honest, draw_passive) for _ in range(2))
    assert first["bank"] == first["shop"] == again["bank"] == again["shop"]
    (tmp_path / "c").mkdir()
    assert drawn(outcomes, tmp_path / "c", honest, draw_passive)["bank"] != first["bank"]


def test_runs_at_the_same_time_draw_one_key(outcomes: Outcomes, tmp_path: Path) -> None:
    """Each starts without a file, and has read it before any other has written it."""
    is_read = Barrier(8)

    def late(draw: Callable[..., bytes]) -> Callable[..., bytes]:
        def drawing(channel: Any, path: Path) -> bytes:
            is_read.wait(20)
            return draw(channel, path)

        return drawing

    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(drawn, outcomes, tmp_path, late(honest), late(draw_passive)) for _ in range(4)]
    assert len({key for run in runs for key in run.result().values()}) == 1


def test_bytes_of_another_run_that_came_first_are_not_replaced(outcomes: Outcomes, tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    first = keep(path, {"bound 0.2": (0.2).hex()})
    assert keep(path, {"bound 0.2": (0.1).hex()}) == keep(path) == first
    assert path.read_text() == json.dumps(first, indent=2) + "\n"


def test_a_pipe_in_the_place_of_what_was_kept_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kept.json")
    with pytest.raises(RunFolderError, match=r"kept\.json cannot be read: it is a named pipe.* Nothing was released"):
        keep(tmp_path / "kept.json")


def test_an_active_party_that_changes_its_bytes_in_a_later_attempt_is_refused(
    outcomes: Outcomes, tmp_path: Path
) -> None:
    drawn(outcomes, tmp_path, honest, draw_passive)
    (tmp_path / "a" / "kept.json").unlink()
    found = drawn(outcomes, tmp_path, honest, draw_passive)
    assert isinstance(found["shop"], Disagreement)
    assert "bring the files back, or agree on another choice and remove kept.json" in str(found["shop"])
    # Both remove theirs: another choice.
    for side in ("a", "b"):
        (tmp_path / side / "kept.json").unlink()
    found = drawn(outcomes, tmp_path, honest, draw_passive)
    assert found["bank"] == found["shop"]


def test_a_passive_party_cannot_choose_its_bytes_after_it_has_seen_the_others(
    outcomes: Outcomes, tmp_path: Path
) -> None:
    def late(channel: Channel, folder: Path) -> None:
        channel.send(HeldOutShares(shares=(drawn_key._hash(bytes(32)),)))
        expect(channel, HeldOutShares)
        channel.send(HeldOutShares(shares=(b"another choice".ljust(32),)))
        expect(channel, HeldOutShares)

    assert isinstance(drawn(outcomes, tmp_path, honest, late)["bank"], Disagreement)


@pytest.mark.parametrize("lie", ["leaves the hash out", "shows other bytes", "shows fewer"])
def test_an_active_party_cannot_leave_out_or_change_a_passive_partys_bytes(
    outcomes: Outcomes, tmp_path: Path, lie: str
) -> None:
    def lying(channel: Channel, folder: Path) -> None:
        (seen,) = expect(channel, HeldOutShares).shares
        mine = bytes(32)
        channel.send(HeldOutShares(shares=(mine, drawn_key._hash(mine) if lie == "leaves the hash out" else seen)))
        expect(channel, HeldOutShares)
        channel.send(HeldOutShares(shares=(mine, mine) if lie == "shows fewer" else (mine,)))

    found = drawn(outcomes, tmp_path, lying, draw_passive)
    assert isinstance(found["shop"], Disagreement | UnexpectedMessage)


def test_whoever_comes_again_after_it_has_seen_the_others_bytes_cannot_choose_other_own_ones(
    outcomes: Outcomes, tmp_path: Path
) -> None:
    def leaving(channel: Channel, folder: Path) -> None:
        (seen,) = expect(channel, HeldOutShares).shares
        channel.send(HeldOutShares(shares=(bytes(32), seen)))
        expect(channel, HeldOutShares)

    def peeping(channel: Channel, folder: Path) -> None:
        channel.send(HeldOutShares(shares=(drawn_key._hash(bytes(32)),)))
        expect(channel, HeldOutShares)

    found = drawn(outcomes, tmp_path / "active", leaving, draw_passive)
    assert isinstance(found["shop"], ProtocolError)
    # The shop's bytes are known by now, and the bank brings others.
    assert isinstance(drawn(outcomes, tmp_path / "active", honest, draw_passive)["shop"], Disagreement)
    found = drawn(outcomes, tmp_path / "passive", honest, peeping)
    assert isinstance(found["bank"], ProtocolError)
    assert isinstance(drawn(outcomes, tmp_path / "passive", honest, draw_passive)["bank"], Disagreement)


def test_without_the_hashes_whoever_speaks_last_chooses_a_record(outcomes: Outcomes, tmp_path: Path) -> None:
    """The broken twin: bytes that are shown before the other side has committed itself."""

    def wants(seed: bytes) -> bool:
        return bool(places_of(seed, pd.Index(["r7"], dtype=object))[0] < 0.05)

    def grinding(channel: Channel, folder: Path) -> bytes:
        (seen,) = expect(channel, HeldOutShares).shares
        tries = (k.to_bytes(32, "big") for k in range(1000))
        mine = next(share for share in tries if wants(drawn_key._key(share, [seen])))
        channel.send(HeldOutShares(shares=(mine,)))
        return drawn_key._key(mine, [seen])

    def credulous(channel: Channel, folder: Path) -> bytes:
        own = b"the shop's bytes".ljust(32)
        channel.send(HeldOutShares(shares=(own,)))
        return drawn_key._key(expect(channel, HeldOutShares).shares[0], [own])

    found = drawn(outcomes, tmp_path, grinding, credulous)
    assert found["bank"] == found["shop"]
    assert wants(found["shop"])
