"""Killed behind any message, on either side, a run that is started again ends as if nothing had happened."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties.errors import Disagreement, RunFolderError
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.runs.journal import Journal, Records
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import RunLog
from parties.session import handshake
from parties.session.termination import NO_REASON
from parties.vertical import party_b, rank_sender
from parties.vertical.party_a import conclude_saved, train_jointly
from protocols.errors import PeerAborted, PeerLost
from protocols.transport.codec import Frame

Outcomes = Callable[..., dict[str, Any]]
Note = Callable[[str, Sequence[Frame]], None]

SILENT = Terminal()

# 400 customers, two columns, 150 rows a chunk.
CHUNKS = ["rank chunk"] * 6
AT_BANK = [
    "received hello",
    "sent hello",
    "received id confirmation",
    "sent id confirmation",
    "received offer",
    *(f"received {kind}" for kind in CHUNKS),
    "sent split ranks",
    "received thresholds",
    "sent done",
    "received done",
]
AT_SHOP = [
    "sent hello",
    "received hello",
    "sent id confirmation",
    "received id confirmation",
    "sent offer",
    *(f"sent {kind}" for kind in CHUNKS),
    "received split ranks",
    "sent thresholds",
    "received done",
    "sent done",
]
BOUNDARIES = [
    pytest.param(party, i, id=f"{party} {i} {words}".replace(" ", "-"))
    for party, all_words in (("bank", AT_BANK), ("shop", AT_SHOP))
    for i, words in enumerate(all_words)
]


class Killed(BaseException):
    """Stands for SIGKILL: no word to anybody, nothing tidied up."""


class Executioner:
    """Ends a party's thread behind its i-th message without an `Abort`.

    Its connections are closed, so the other side does not wait for it as it would after a kill (`test_reconnection`).
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.victim, self.remaining = "", -1
        # The threads themselves: another one may have the number of a thread that is over.
        self._dead: set[threading.Thread] = set()
        auditor, abort = RunLog._auditor, handshake.abort

        def watched(log: RunLog, event: str, peer: str) -> Note:
            note, party = auditor(log, event, peer), {"bank": "shop", "shop": "bank"}[peer]

            def noted(kind: str, frames: Sequence[Frame]) -> None:
                note(kind, frames)
                if party == self.victim:
                    self.remaining -= 1
                    if self.remaining == -1:
                        self._dead.add(threading.current_thread())
                        raise Killed

            return noted

        def silent_if_dead(*arguments: Any, **named: Any) -> None:
            if threading.current_thread() not in self._dead:
                abort(*arguments, **named)

        patch.setattr(RunLog, "_auditor", watched)
        patch.setattr(handshake, "abort", silent_if_dead)

    def strike(self, victim: str, behind: int) -> None:
        self.victim, self.remaining = victim, behind


@pytest.fixture
def executioner(monkeypatch: pytest.MonkeyPatch) -> Executioner:
    monkeypatch.setattr(rank_sender, "CHUNK_ROWS", 150)
    return Executioner(monkeypatch)


def prepare(sites: Any, **changes: Any) -> Any:
    """The same noise in every run, so that every run has the same model."""
    model = {"n_estimators": 6, "max_depth": 3, "subsample": 0.7, "seed": 3}
    sites.bank.run.update(wait=3, model={**model, **changes})
    sites.shop.run.update(wait=3, seed=7, share_thresholds=True)
    return sites


def start_both(sites: Any, outcomes: Outcomes) -> dict[str, Any]:
    bank, shop = sites.bank.write(), sites.shop.write()
    calls = {
        "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
        "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
    }
    return outcomes(calls)


def log_lines(site: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (site.run_folder / "log.jsonl").read_text().splitlines()]


def messages(site: Any, event: str, kind: str) -> list[str]:
    return [line["sha256"] for line in log_lines(site) if (line["event"], line.get("kind")) == (event, kind)]


def charges(site: Any) -> Counter[str]:
    database = sqlite3.connect(site.path / "runs" / "ledger.sqlite")
    rows = database.execute("SELECT fields FROM lines").fetchall()
    database.close()
    return Counter(json.loads(fields)["kind"] for (fields,) in rows)


def results(sites: Any) -> dict[str, bytes]:
    """What both sides keep of a run, apart from its history."""
    kept = {"bank": ("model.json", "guarantee.json", "partners.json"), "shop": ("model.json", "guarantee.json")}
    return {
        f"{party}/{name}": (getattr(sites, party).run_folder / name).read_bytes()
        for party, names in kept.items()
        for name in names
    }


def assert_over(sites: Any) -> None:
    """Both sides are finished, and nothing lies about that only an unfinished run needs."""
    for site in (sites.bank, sites.shop):
        assert json.loads((site.run_folder / "meta.json").read_text())["finished"] is not None
        assert [path.name for path in site.run_folder.iterdir() if path.name.startswith(".")] == []


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, make_sites: Callable[[Path], Any], outcomes: Outcomes
) -> dict[str, bytes]:
    sites = prepare(make_sites(tmp_path_factory.mktemp("undisturbed")))
    found = start_both(sites, outcomes)
    assert not [error for error in found.values() if isinstance(error, BaseException)]
    return results(sites)


@pytest.mark.parametrize(("victim", "behind"), BOUNDARIES)
def test_a_run_killed_behind_any_message_ends_with_the_same_model(
    sites: Any, outcomes: Outcomes, executioner: Executioner, undisturbed: dict[str, bytes], victim: str, behind: int
) -> None:
    prepare(sites)
    executioner.strike(victim, behind)
    first = start_both(sites, outcomes)
    assert isinstance(first[victim], Killed)
    second = start_both(sites, outcomes)
    assert not [error for error in second.values() if isinstance(error, BaseException)]
    assert results(sites) == undisturbed
    assert_over(sites)
    # Nothing was drawn or paid for twice, and of what the bank had kept no chunk came again.
    assert (charges(sites.shop)["charge"], charges(sites.shop)["stored"]) == (2, 2)
    chunks = messages(sites.bank, "received", "rank chunk")
    was_lost = victim == "bank" and AT_BANK[behind] == "received rank chunk"
    assert len(chunks) == len(CHUNKS) + was_lost
    assert len(set(chunks)) == len(CHUNKS)


def test_the_survivor_says_who_where_and_why_and_that_the_run_may_be_started_again(
    sites: Any, outcomes: Outcomes, executioner: Executioner
) -> None:
    prepare(sites)
    executioner.strike("shop", AT_SHOP.index("received split ranks"))
    found = start_both(sites, outcomes)
    assert isinstance(found["bank"], PeerLost)
    assert str(found["bank"]) == (
        "shop closed the connection, while this party was having split ranks resolved. "
        "Start the same run again on both sides: it goes on where it stopped"
    )
    assert log_lines(sites.bank)[-1]["message"] == str(found["bank"])


def test_a_seed_that_the_run_file_leaves_open_is_drawn_once(
    sites: Any, outcomes: Outcomes, executioner: Executioner
) -> None:
    prepare(sites, seed=None, n_estimators=30, subsample=0.3)
    executioner.strike("bank", AT_BANK.index("sent split ranks"))
    start_both(sites, outcomes)
    second = start_both(sites, outcomes)
    assert not [error for error in second.values() if isinstance(error, BaseException)]
    wanted = messages(sites.bank, "sent", "split ranks")
    assert (len(wanted), len(set(wanted))) == (2, 1)


def test_a_finished_run_is_reported_and_nothing_is_opened(sites: Any, outcomes: Outcomes) -> None:
    prepare(sites)
    start_both(sites, outcomes)
    before = {site.party: log_lines(site) for site in (sites.bank, sites.shop)}
    said: list[str] = []
    terminal = Terminal(say=said.append)
    train_active(sites.bank.write(), insecure=False, terminal=terminal)
    train_passive(sites.shop.write(), insecure=False, terminal=terminal)
    assert [words.partition(" was finished at ")[0] for words in said] == [
        "run 'spring' of bank",
        "run 'spring' of shop",
    ]
    assert all(words.endswith("; nothing was done") for words in said)
    assert {site.party: log_lines(site) for site in (sites.bank, sites.shop)} == before


@pytest.fixture
def interrupted(sites: Any, outcomes: Outcomes, executioner: Executioner) -> Any:
    """A run of which the bank holds four of six chunks."""
    prepare(sites)
    executioner.strike("bank", AT_BANK.index("received rank chunk") + 4)
    start_both(sites, outcomes)
    return sites


@pytest.mark.parametrize(
    ("party", "section", "change", "words"),
    [
        ("bank", "model", {"max_depth": 4}, "model.max_depth was 3, is 4"),
        ("shop", "desensitize", {"epsilon": 0.6}, "desensitize.epsilon was 0.5, is 0.6"),
        ("shop", "desensitize", {"columns": {"spend": {"epsilon": 1}}}, "desensitize.columns.spend.epsilon was absent"),
    ],
)
def test_a_changed_run_file_is_refused_with_the_difference(
    interrupted: Any, party: str, section: str, change: dict[str, Any], words: str
) -> None:
    site, train = {"bank": (interrupted.bank, train_active), "shop": (interrupted.shop, train_passive)}[party]
    site.run[section] = {**site.run[section], **change}
    with pytest.raises(RunFolderError, match=rf"the beginning of a run of another run file: {words}.*Nothing was sent"):
        train(site.write(), insecure=False, terminal=SILENT)


def test_how_to_reach_each_other_may_change_in_between(interrupted: Any, outcomes: Outcomes) -> None:
    for site in (interrupted.bank, interrupted.shop):
        site.run.update(timeout=3, wait=5)
    found = start_both(interrupted, outcomes)
    assert not [error for error in found.values() if isinstance(error, BaseException)]


def test_other_labels_are_refused(interrupted: Any) -> None:
    interrupted.bank.table["y"] = 1 - interrupted.bank.table["y"]
    with pytest.raises(RunFolderError, match="the beginning of a run on other records, labels or columns"):
        train_active(interrupted.bank.write(), insecure=False, terminal=SILENT)


def test_another_release_is_never_mixed_with_the_beginning_of_the_first(interrupted: Any, outcomes: Outcomes) -> None:
    for path in (interrupted.shop.path / "runs").rglob("*"):
        if path.is_file():
            path.unlink()
    for path in sorted((interrupted.shop.path / "runs").rglob("*"), reverse=True):
        path.rmdir()
    interrupted.shop.run["seed"] = 8
    found = start_both(interrupted, outcomes)
    assert isinstance(found["shop"], Disagreement)
    assert "bank holds the beginning of another release" in str(found["shop"])
    assert isinstance(found["bank"], PeerAborted)
    assert messages(interrupted.shop, "sent", "rank chunk") == []


@pytest.mark.parametrize("damage", ["cut short", "flipped", "too long", "gone"])
def test_what_was_kept_badly_comes_again(
    interrupted: Any, outcomes: Outcomes, undisturbed: dict[str, bytes], damage: str
) -> None:
    path = interrupted.bank.run_folder / "journal/from/shop/0.ranks"
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    match damage:
        case "cut short":
            path.write_bytes(path.read_bytes()[:-33])
        case "flipped":
            path.write_bytes(content)
        case "too long":
            path.write_bytes(path.read_bytes() + b"12345")
        case "gone":
            path.unlink()
    found = start_both(interrupted, outcomes)
    assert not [error for error in found.values() if isinstance(error, BaseException)]
    assert results(interrupted) == undisturbed


def test_a_second_process_on_the_same_run_is_refused(interrupted: Any) -> None:
    with (
        RunFolder(interrupted.bank.run_folder).locked(),
        pytest.raises(RunFolderError, match=r"another process works on the run in .* Nothing was sent"),
    ):
        train_active(interrupted.bank.write(), insecure=False, terminal=SILENT)


def test_of_two_peers_only_the_one_that_did_not_confirm_is_asked_again(
    carriers: dict[str, Any], trial: Any, tmp_path: Path
) -> None:
    job = trial.active(journal=Journal(tmp_path))

    def full_disk(share: Any) -> None:
        raise RunFolderError("no space left")

    saves = {"shop": lambda share: None, "post": full_disk}
    first = carriers["curve"](
        lambda channels: train_jointly(job, channels),
        {
            party: lambda channel, party=party: party_b.train(trial.passive(party), channel, save=saves[party])
            for party in saves
        },
    )
    words = f"post ended the run while saving its share: {NO_REASON}"
    assert str(first["bank"]) == words
    job = trial.active(journal=Journal(tmp_path))
    assert job.journal.confirmed == ("shop",)
    second = carriers["curve"](
        lambda channels: conclude_saved(job, channels[0]),
        {"post": lambda channel: party_b.train(trial.passive("post"), channel)},
    )
    assert second["bank"] is None
    assert second["post"].router.tests.n_tests == len(job.journal.tests("post").ranks)
    assert job.journal.confirmed == ("shop", "post")


def test_half_written_files_of_a_kill_are_swept_up(interrupted: Any, outcomes: Outcomes) -> None:
    (interrupted.bank.run_folder / ".model.json.partial").write_text("{")
    start_both(interrupted, outcomes)
    assert_over(interrupted)


def test_common_records_of_a_cluster_are_kept_by_their_rows(tmp_path: Path) -> None:
    journal, rows = Journal(tmp_path, seed=3), np.array([0, 2, 7])
    assert journal.common_rows(9) is None
    journal.begin(Records(3, "digest"), {}, rows)
    found = Journal(tmp_path, seed=3).common_rows(9)
    assert found is not None
    assert found.tolist() == rows.tolist()
    for n_rows, damaged in ((7, rows), (9, rows[[0, 0]])):
        np.save(journal.path / "common.npy", damaged)
        with pytest.raises(RunFolderError, match=r"common\.npy is damaged"):
            journal.common_rows(n_rows)


def test_what_was_received_is_kept_when_a_run_is_over_everywhere(tmp_path: Path) -> None:
    journal = Journal(tmp_path, seed=3)
    (journal.folder_of("shop")).mkdir(parents=True)
    journal.note_rows(np.array([2, 0]), {"shop": np.array([1, 0])})
    # Concluding a saved run counts rows among those that were common.
    journal.note_rows(np.array([0, 1]), {"shop": np.array([0, 1])})
    journal.close()
    assert not Journal.is_open(tmp_path)
    kept = Journal.kept(tmp_path)
    rows, orders = kept.rows(3)
    assert rows.tolist() == [2, 0]
    assert orders["shop"].tolist() == [1, 0]
    assert (kept.seed, kept.peers) == (3, ("shop",))
    on_a_cluster = Journal(tmp_path / "other", seed=3)
    on_a_cluster.close()
    assert not (tmp_path / "other" / "received").exists()
