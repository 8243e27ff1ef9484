"""Connections: no run in clear text unless asked for, and every message of an opened channel is logged."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from parties.config.reading import read_run
from parties.config.vertical import ActiveRun, PassiveRun
from parties.runs.run_log import LOGGED_IN_FULL, RunLog
from parties.session.connections import open_connections, own_keys, peer_key
from protocols.errors import KeyFileError
from protocols.messages.vertical import Done
from protocols.transport.channel import expect
from protocols.transport.keys import read_secret
from tests.support.sites import Sites


def test_keys_are_read_only_where_there_is_encryption(sites: Sites, tmp_path: Path) -> None:
    run = read_run(sites.bank.write(), ActiveRun)
    assert own_keys(run, insecure=False) == read_secret(sites.bank.path / "keys" / "bank.secret")
    assert own_keys(run, insecure=True) is None
    public = sites.bank.path / "keys" / "shop.public"
    assert peer_key(public, "shop", insecure=False) == read_secret(sites.shop.path / "keys" / "shop.secret").public
    assert peer_key(tmp_path / "absent", "shop", insecure=True) is None


def test_without_keys_nothing_is_sent(sites: Sites) -> None:
    del sites.bank.run["secret_key"]
    run = read_run(sites.bank.write(), ActiveRun)
    with pytest.raises(KeyFileError, match=r"names no secret_key; .* Nothing was sent"):
        own_keys(run, insecure=False)
    with pytest.raises(KeyFileError, match=r"no public_key for shop\. Nothing was sent"):
        peer_key(None, "shop", insecure=False)


def test_another_partys_key_does_not_serve_as_a_secret_one(sites: Sites) -> None:
    sites.bank.run["secret_key"] = "keys/bank.public"
    with pytest.raises(KeyFileError), open_connections(read_run(sites.bank.write(), ActiveRun), insecure=False):
        pass


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([{"name": "again", "public_key": "keys/shop.public"}], "two peers have the same public key"),
        ([{"name": "again", "public_key": "keys/bank.public"}], "a peer's public key is this party's own"),
    ],
)
def test_one_party_is_not_taken_for_several(sites: Sites, more: list[dict[str, str]], words: str) -> None:
    """The doctor alone said so: with keys for workers' names, one worker counted as two of those that add noise."""
    sites.bank.run["passive"] += more
    run = read_run(sites.bank.write(), ActiveRun)
    with pytest.raises(KeyFileError, match=rf"{words}\. Nothing was sent"), open_connections(run, insecure=False):
        pass


def test_two_parties_meet_and_every_message_is_a_line_of_both_logs(sites: Sites, tmp_path: Path) -> None:
    runs = (read_run(sites.bank.write(), ActiveRun), read_run(sites.shop.write(), PassiveRun))
    folders = [tmp_path / "log-bank", tmp_path / "log-shop"]

    def be(place: int) -> None:
        folders[place].mkdir()
        log = RunLog(folders[place])
        with open_connections(runs[place], insecure=False) as connect:
            (channel,) = connect(log).values()
            if place == 0:
                expect(channel, Done)
            channel.send(Done())
            if place == 1:
                expect(channel, Done)
        log.close()

    threads = [threading.Thread(target=be, args=(place,), daemon=True) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    events = [
        [json.loads(line)["event"] for line in (folder / "log.jsonl").read_text().splitlines()] for folder in folders
    ]
    assert events[0][0] == "listening"
    assert events[1][0] == "connecting"
    for found in events:
        assert (found.count("sent"), found.count("received")) == (1, 1)


def test_a_peer_that_comes_back_without_end_fills_no_disk(sites: Sites, tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    with open_connections(read_run(sites.bank.write(), ActiveRun), insecure=False) as connect:
        (channel,) = connect(log).values()
        for _ in range(3000):
            channel.traffic.on_return("shop came back")
    log.close()
    assert (tmp_path / "log.txt").read_text().count("shop came back") == LOGGED_IN_FULL + len(
        (128, 256, 512, 1024, 2048)
    )
