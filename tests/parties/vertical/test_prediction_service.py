"""A passive party that stays up, as a process of its own: it outlives whatever the active party does."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.routing import Router, SplitTests
from opboost.schema import ColumnSchema, Kind
from opboost.split_tests import n_answer_bits
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun
from parties.errors import Disagreement, RecordsRefused, RunFolderError, Stopped
from parties.jobs.answer_vertical import serve_until_stopped
from parties.jobs.life_cycle import Terminal, logged
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import train_active, train_passive
from parties.reports.page import FigureGrid
from parties.reports.words import leakage_section
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import RunLog
from parties.session.connections import open_connections, own_keys, peer_key
from parties.session.handshake import greet_all
from parties.session.session_log import Tally
from parties.vertical import prediction_service
from parties.vertical.prediction_client import session
from parties.vertical.prediction_server import AnswerableRecords, Answerer
from parties.vertical.prediction_service import StopSignals
from protocols.errors import PeerAborted, PeerLost, ProtocolError, UnexpectedMessage
from protocols.messages.prediction import Answers, Ask, RecordStatus
from protocols.messages.vertical import Abort, Done, Hello, Role, Task
from protocols.transport.channel import Channel, Timing, Traffic, expect
from protocols.transport.codec import MAX_ARRAY_BYTES
from protocols.transport.zmq_listener import Listener
from tests.support.processes import FORKS, finish

SILENT = Terminal()


class LeftBehind:
    """The channel to an active party that has gone."""

    peer = "bank"

    def __init__(self) -> None:
        self.traffic = Traffic()

    def check(self) -> None:
        raise PeerLost("bank closed the connection")

    def reset(self) -> None:
        pass


def command(arguments: list[str], stdout: str, stderr: str) -> None:
    """The command `opboost` in this process."""
    from parties.cli import main

    sys.argv = ["opboost", *arguments]
    sys.stdout, sys.stderr = (open(path, "w", buffering=1) for path in (stdout, stderr))  # noqa: SIM115
    main()


def hasty_command(arguments: list[str], stdout: str, stderr: str) -> None:
    """The command `opboost` in this process, which logs the 1st, 2nd and 4th session, and others after a moment."""
    from parties.runs import run_log
    from parties.session import session_log

    run_log.LOGGED_IN_FULL, session_log.LONGEST_WAIT_S = 0, 0.1
    command(arguments, stdout, stderr)


def command_that_dies(number: int, arguments: list[str], stdout: str, stderr: str) -> None:
    """The command `opboost predict` in this process, which gets a signal when its predictions have their place."""
    from parties.jobs import predict_vertical

    predict_vertical.score = lambda *_: os.kill(os.getpid(), number)  # type: ignore[assignment]
    command(arguments, stdout, stderr)


Outcomes = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory, make_sites: Callable[[Path], Any], outcomes: Outcomes) -> Any:
    """A bank and a shop that have trained."""
    made = make_sites(tmp_path_factory.mktemp("sites"))
    train(made, outcomes)
    return made


def train(made: Any, outcomes: Outcomes) -> None:
    paths = {site.party: site.write() for site in (made.bank, made.shop)}
    calls: dict[str, Callable[[], Any]] = {
        "bank": lambda: train_active(paths["bank"], insecure=False, terminal=SILENT),
        "shop": lambda: train_passive(paths["shop"], insecure=False, terminal=SILENT),
    }
    found = outcomes(calls)
    assert not [error for error in found.values() if isinstance(error, BaseException)], found


def lines_of(site: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (site.run_folder / "log.jsonl").read_text().splitlines()]


class Service:
    """The shop as a process that serves."""

    def __init__(self, sites: Any, target: Callable[..., None] = command) -> None:
        self._sites = sites
        path = sites.shop.run_folder / "log.jsonl"
        self._n_before = len(path.read_text().splitlines())
        self._said = {name: sites.shop.path / f"{name}.txt" for name in ("stdout", "stderr")}
        arguments = ["party-b", str(sites.shop.write()), "--serve", "--format", "json"]
        texts = [str(path) for path in self._said.values()]
        self.process = FORKS.Process(target=target, args=(arguments, *texts), daemon=True)
        self.process.start()
        self.wait_for("serving")

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Lines of this service about an event."""
        return [line for line in lines_of(self._sites.shop)[self._n_before :] if line["event"] == event]

    def said(self, event: str) -> list[str]:
        """Sentences of this service about an event."""
        return [line["message"] for line in self.lines(event)]

    def wait_for(self, event: str, n_times: int = 1) -> str:
        deadline = time.monotonic() + 30
        while len(self.said(event)) < n_times:
            assert self.process.is_alive(), self._said["stderr"].read_text()
            assert time.monotonic() < deadline, f"{event!r} was not logged {n_times} times within 30 s"
            time.sleep(0.02)
        return self.said(event)[n_times - 1]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, dict[str, int], str]:
        """Exit code, result and standard error."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)
        self.process.join(20)
        assert self.process.exitcode is not None
        return self.process.exitcode, json.loads(self._said["stdout"].read_text()), self._said["stderr"].read_text()


@contextmanager
def serving(sites: Any, target: Callable[..., None] = command, **settings: Any) -> Iterator[Service]:
    before = dict(sites.shop.run)
    sites.shop.run.update(settings)
    service = Service(sites, target)
    try:
        yield service
    finally:
        sites.shop.run = before
        service.process.kill()
        service.process.join(10)


def predict(sites: Any, out: Path, mode: str = "routed", ids: list[str] | None = None) -> pd.DataFrame:
    listed = None
    if ids is not None:
        listed = out.with_suffix(".ids")
        listed.write_text("\n".join(ids))
    path = sites.bank.write()
    predict_active(path, data=None, ids=listed, mode=mode, out=out, insecure=False, terminal=SILENT)
    return pd.read_csv(out)


def hello(**changes: Any) -> Hello:
    mine: dict[str, Any] = {"role": Role.ACTIVE, "party": "bank", "run_id": "spring", "task": Task.PREDICT, "n_rows": 0}
    return Hello(**{**mine, **changes})


@contextmanager
def as_bank(sites: Any, wait_s: float = 15) -> Iterator[Channel]:
    """A channel to the shop with the bank's key, to say anything over."""
    run = read_run(sites.bank.write(), ActiveRun)
    peers = {"shop": peer_key(run.passive[0].public_key, "shop", False)}
    timing = Timing(timeout_s=3, wait_s=wait_s)
    listener = Listener(run.listen, peers, keys=own_keys(run, False), timing=timing)
    try:
        yield listener.channel("shop")
    finally:
        listener.close()


def ask_and_hang(path: str, pipe: Connection) -> None:
    """A bank that has asked and was answered, and says nothing more."""
    run = read_run(Path(path), ActiveRun)
    folder = RunFolder(run.run_folder)
    with (
        logged(folder, SILENT) as log,
        open_connections(run, False) as open_channels,
        session(folder.load_joint_model(), list(open_channels(log).values()), party="bank", run_id="spring") as asking,
    ):
        asking.predict(["k0001"], {"age": np.array([30.0])}, desensitized=False)
        pipe.send("answered")
        time.sleep(60)


def test_one_service_answers_many_banks_and_outlives_those_that_die_vanish_or_talk_nonsense(
    sites: Any, tmp_path: Path
) -> None:
    with serving(sites) as service:
        first = predict(sites, tmp_path / "1.csv")
        assert first["status"].eq("ok").all()
        service.wait_for("session")

        with as_bank(sites) as channel:
            greet_all([channel], {"shop": hello()})
            channel.send(Answers(status=np.zeros(1, np.uint8), bits=np.zeros((1, 1), np.uint8)))
            with pytest.raises(PeerAborted, match="sent 'answers' where a request was due"):
                expect(channel, Answers)
            # A bank that was told so may still say its own goodbye.
            channel.send(Abort(phase="asking", reason="another party left"))
        assert "where a request was due" in service.wait_for("session", 2)

        mine, theirs = FORKS.Pipe()
        bank = FORKS.Process(target=ask_and_hang, args=(str(sites.bank.path / "run.yaml"), theirs), daemon=True)
        bank.start()
        try:
            assert mine.poll(30)
        finally:
            bank.kill()
            bank.join(10)
        assert "bank closed the connection" in service.wait_for("session", 3)

        with as_bank(sites):
            time.sleep(0.3)
        second = predict(sites, tmp_path / "2.csv", ids=["k0007", "k0003"])
        pd.testing.assert_frame_equal(second, first[first["id"].isin(second["id"])].reset_index(drop=True))
        service.wait_for("session", 4)
        code, done, err = service.stop()
    assert (code, done) == (0, {"sessions": 4, "requests": 3, "records_answered": 403})
    assert service.said("stopped")[0].startswith("told to stop after 4 sessions with 3 requests: 403 records answered")
    assert not err
    assert service.said("session")[0].startswith("session 1: 400 records in 1 requests (routed), 400 answered with ")
    assert not [record_id for record_id in ("k0001", "k0003") if record_id in err + "".join(service.said("session"))]


def test_what_a_service_answered_is_logged_while_the_conversation_goes_on_and_stays_when_it_is_killed(
    sites: Any,
) -> None:
    """It waited in memory for the end of the conversation, which a bank may keep open for days."""
    with serving(sites, hasty_command) as service, as_bank(sites) as channel:
        greet_all([channel], {"shop": hello()})
        for n_asked in (3, 2):
            channel.send(Ask(ids=tuple(f"k{i:04}" for i in range(n_asked)), desensitized=False))
            expect(channel, Answers)
            # Nobody says anything meanwhile.
            assert service.wait_for("session", 4 - n_asked).endswith("goes on")
        service.process.kill()
        service.process.join(10)
        assert service.said("stopped") == []
    found = [(line["answered"], line["routed_bits"]) for line in service.lines("session")]
    assert found == [(n, n * bits_per_record(sites)) for n in (3, 2)]


def test_a_session_that_waits_for_others_is_logged_where_nobody_comes(sites: Any) -> None:
    with serving(sites, hasty_command) as service:
        for _ in range(3):
            with as_bank(sites) as channel:
                greet_all([channel], {"shop": hello()})
                channel.send(Done())
        assert service.wait_for("session", 3).startswith("session 3: 0 records in 0 requests (nothing asked)")


def test_an_error_that_ends_a_service_loses_no_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    turns = itertools.count(1)

    def answer_and_fail(*_: Any, tally: Tally, **__: Any) -> None:
        tally.began, tally.n_requests, tally.n_asked, tally.n_answered = time.monotonic(), 1, 3, 2
        if next(turns) == 120:
            raise OSError("the disk is gone")

    monkeypatch.setattr(prediction_service, "answer_session", answer_and_fail)
    monkeypatch.setattr(prediction_service, "PAUSE_S", 0)
    answering: Any = SimpleNamespace(n_bits=9)
    channel, others = cast(Any, LeftBehind()), cast(Any, None)
    with closing(RunLog(tmp_path)) as log, pytest.raises(OSError, match="the disk is gone"):
        prediction_service.serve_sessions(answering, channel, others, file=others, log=log, signals=StopSignals())
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert sum(line["answered"] for line in lines if line["event"] == "session") == 240
    assert lines[-1]["message"] == (
        "stopped by an error after 120 sessions with 120 requests: 240 records answered, 0 refused"
    )


def test_a_bank_that_came_for_another_job_is_not_disturbed_and_hears_of_it_only_by_waiting(sites: Any) -> None:
    with serving(sites) as service:
        for other in ({"task": Task.TRAIN}, {"run_id": "autumn"}):
            with as_bank(sites, wait_s=1.5) as channel, pytest.raises(PeerLost, match="did not connect"):
                greet_all([channel], {"shop": hello(**other)})
        with as_bank(sites) as channel:
            assert greet_all([channel], {"shop": hello()})["shop"].comes_again
            channel.send(Done())
            service.wait_for("session")
        assert service.said("failed") == []
        assert service.stop(signal.SIGINT)[:2] == (0, {"sessions": 1, "requests": 0, "records_answered": 0})


def test_a_service_that_is_stopped_in_the_middle_says_goodbye(sites: Any) -> None:
    with serving(sites) as service, as_bank(sites) as channel:
        greet_all([channel], {"shop": hello()})
        channel.send(Ask(ids=("k0001",), desensitized=False))
        expect(channel, Answers)
        assert service.process.pid is not None
        os.kill(service.process.pid, signal.SIGTERM)
        with pytest.raises(
            PeerAborted, match=r"shop ended the run while (answering|waiting for a request): it was told to stop"
        ):
            expect(channel, Answers)
        service.process.join(20)
        assert service.process.exitcode == 0
        assert service.said("session")[0].endswith("told to stop")


def test_new_data_is_read_when_it_changes_and_kept_when_it_cannot_be(sites: Any, tmp_path: Path) -> None:
    path, whole = sites.shop.path / "data.csv", sites.shop.table
    sites.shop.table = whole[~whole["id"].isin(["k0001", "k0002"])]

    def replace(text: str) -> None:
        new = path.with_suffix(".new")
        new.write_text(text)
        os.utime(new, (time.time() - 5, time.time() - 5))
        new.replace(path)

    try:
        with serving(sites) as service:
            asked = ["k0001", "k0003"]
            before = predict(sites, tmp_path / "1.csv", ids=asked)
            assert before["status"].tolist() == ["missing_passive_columns", "ok"]
            assert before["prediction"].isna().tolist() == [True, False]
            replace("id,spend,visits\nk0001,not a number,3\n")
            assert predict(sites, tmp_path / "2.csv", ids=asked).equals(before)
            assert "is not used: column 'spend' is numeric by the schema but 1 cell" in service.said("data")[0]
            replace(whole.to_csv(index=False))
            after = predict(sites, tmp_path / "3.csv", ids=asked)
            assert after["status"].tolist() == ["ok", "ok"]
            assert service.said("data")[1:] == ["the data file has changed and was read again: 400 records"]
            path.unlink()
            assert predict(sites, tmp_path / "4.csv", ids=asked).equals(after)
            assert len(service.said("data")) == 3
            assert service.stop()[0] == 0
    finally:
        sites.shop.table = whole
        sites.shop.write()


def bits_per_record(sites: Any) -> int:
    return len(json.loads((sites.shop.run_folder / "model.json").read_text())["tests"])


def test_the_daily_limit_holds_over_restarts_and_says_which_records_it_cost(sites: Any, tmp_path: Path) -> None:
    limit = {"routed_bits_per_day": 7 * bits_per_record(sites), "batch_rows": 3}
    with serving(sites, serve=limit) as service:
        assert predict(sites, tmp_path / "1.csv", ids=["k0001", "k0002"])["status"].tolist() == ["ok"] * 2
        with pytest.raises(RecordsRefused, match=r"refused 3 \(refused_daily_limit\) of 8 records; 2\.csv holds"):
            predict(sites, tmp_path / "2.csv", ids=[f"k{i:04}" for i in range(8)])
        second = pd.read_csv(tmp_path / "2.csv")
        assert second["status"].tolist() == ["ok"] * 5 + ["refused_daily_limit"] * 3
        assert second["prediction"].notna().tolist() == [True] * 5 + [False] * 3
        service.wait_for("session", 2)
        assert "8 records in 3 requests (routed), 5 answered" in service.said("session")[1]
        service.process.kill()
    with serving(sites, serve=limit) as service:
        with pytest.raises(RecordsRefused):
            predict(sites, tmp_path / "3.csv", ids=["k0001"])
        desensitized = predict(sites, tmp_path / "4.csv", mode="desensitized", ids=["k0001"])
        assert desensitized["status"].tolist() == ["ok"]
        with as_bank(sites) as channel:
            assert greet_all([channel], {"shop": hello()})["shop"].max_rows == 3
            channel.send(Ask(ids=tuple("abcd"), desensitized=False))
            with pytest.raises(PeerAborted, match="4 records were asked for at once; this party answers at most 3"):
                expect(channel, Answers)


def test_rate_and_refused_bits_are_told_per_record_and_do_not_end_the_service(sites: Any, tmp_path: Path) -> None:
    with serving(sites, serve={"records_per_minute": 6}, allow_routed=False) as service:
        with pytest.raises(RecordsRefused, match=r"refused 2 \(refused_routed\) of 2 records"):
            predict(sites, tmp_path / "1.csv", ids=["k0001", "k0002"])
        with pytest.raises(RecordsRefused, match=r"refused 1 \(refused_rate_limit\) of 7 records"):
            predict(sites, tmp_path / "2.csv", mode="desensitized", ids=[f"k{i:04}" for i in range(7)])
        second = pd.read_csv(tmp_path / "2.csv")
        assert second["status"].tolist() == ["ok"] * 6 + ["refused_rate_limit"]
        assert second["prediction"].notna().tolist() == [True] * 6 + [False]
        assert service.stop()[:2] == (0, {"sessions": 2, "requests": 2, "records_answered": 6})


@pytest.mark.parametrize(
    ("number", "n_asked", "options"),
    [(signal.SIGKILL, 6, []), (signal.SIGTERM, 7, []), (signal.SIGKILL, 6, ["--overwrite"])],
    ids=["killed", "told to stop", "killed as it replaced a file"],
)
def test_a_bank_that_dies_behind_its_predictions_asks_for_them_only_once(
    tmp_path: Path, make_sites: Callable[[Path], Any], outcomes: Outcomes, number: int, n_asked: int, options: list[str]
) -> None:
    """Begun again it was refused all of them, since its limit was used up, and this took the place of all scores."""
    made = make_sites(tmp_path)
    train(made, outcomes)
    out, ids = tmp_path / "scores.csv", tmp_path / "ids.txt"
    ids.write_text("".join(f"k{i:04}\n" for i in range(n_asked)))
    if options:
        out.write_text("of May\n")
    asked = ["--ids", str(ids), "--out", str(out), *options]
    with serving(made, serve={"records_per_minute": 6}) as service:
        arguments = ["predict", str(made.bank.write()), *asked]
        said = [str(tmp_path / name) for name in ("stdout", "stderr")]
        bank = FORKS.Process(target=command_that_dies, args=(number, arguments, *said), daemon=True)
        bank.start()
        bank.join(60)
        assert bank.exitcode == (-number if number == signal.SIGKILL else 128 + number)
        written = out.read_bytes()
        assert pd.read_csv(out)["status"].tolist() == ["ok"] * 6 + ["refused_rate_limit"] * (n_asked - 6)
        (end,) = finish(made.bank.start("predict", *asked[:4], "--format", "json"))
        assert out.read_bytes() == written
        assert end[0] == (0 if n_asked == 6 else 5), end
        # Standard error is no terminal here.
        assert "scores.csv holds the predictions of this very request" in end[2]
        if n_asked == 6:
            assert json.loads(end[1]) == {"predictions": str(out), "asked": False}
        assert ("refused 1 (refused_rate_limit) of 7 records; scores.csv holds the others" in end[2]) == (n_asked > 6)
        assert not (made.bank.run_folder / "predicting.json").exists()
        assert "nobody was asked again" in (made.bank.run_folder / "log.txt").read_text()
        service.wait_for("session")
        assert service.stop()[:2] == (0, {"sessions": 1, "requests": 1, "records_answered": 6})
    (end,) = finish(made.bank.start("predict", *asked[:4]))
    assert (end[0], "scores.csv exists; give another file" in end[2]) == (1, True)


def test_with_overwrite_everybody_is_asked_anew_whatever_an_earlier_request_left(
    tmp_path: Path, make_sites: Callable[[Path], Any], outcomes: Outcomes
) -> None:
    """The scores of an earlier night stayed, with exit code 0 and no word, though the shop's table was another."""
    made = make_sites(tmp_path)
    train(made, outcomes)
    metrics = made.bank.run_folder / "metrics.json"
    asked = ["--out", str(tmp_path / "scores.csv"), "--overwrite", "--format", "json"]

    def predict_with(spend: float) -> tuple[int | None, str, pd.DataFrame]:
        made.shop.table["spend"] = spend
        with serving(made, serve={}):
            ((code, printed, _),) = finish(made.bank.start("predict", *asked))
        return code, printed, pd.read_csv(tmp_path / "scores.csv")

    metrics.write_text("{")
    code, _, first = predict_with(1)
    assert code == 6
    metrics.unlink()
    code, printed, second = predict_with(99)
    assert (code, "asked" in json.loads(printed)) == (0, False)
    assert not second["prediction"].equals(first["prediction"])


def test_a_request_over_budget_ends_no_conversation_and_counts_as_asked_for(
    tmp_path: Path, make_sites: Callable[[Path], Any], outcomes: Outcomes
) -> None:
    """Whoever asks in the same conversation goes on, and the shop's own log alone says which column was refused."""
    made = make_sites(tmp_path)
    made.shop.run |= {"ledger": {"budget": {"columns": {"spend": {"epsilon": 6}}}}, "changed_values": "redraw"}
    train(made, outcomes)
    table = made.shop.table
    table["spend"] = table["spend"].where(table["id"] != "k0007", 100 - table["spend"])
    answered, refused = RecordStatus.ANSWERED, RecordStatus.REFUSED_BUDGET
    with serving(made, serve={"records_per_minute": 6}) as service:
        with as_bank(made) as channel:
            greet_all([channel], {"shop": hello()})
            found = []
            for ids in (("k0001", "k0007", "nobody"), ("k0007",), ("k0001", "k0002"), ("k0007", "k0003")):
                channel.send(Ask(ids=ids, desensitized=True))
                found.append(expect(channel, Answers))
            channel.send(Done())
        assert [answers.status.tolist() for answers in found] == [
            [refused] * 3,
            [refused],
            [answered] * 2,
            [RecordStatus.REFUSED_RATE_LIMIT] * 2,
        ]
        assert not any(answers.bits.any() for answers in found[:2])
        assert "8 records in 4 requests (desensitized), 2 answered" in service.wait_for("session")
        sentence = "a request was refused: over budget: column 'spend' per unit would have spent 10 of 6. Nothing was "
        assert service.said("over budget") == [f"{sentence}released"] * 2
        with pytest.raises(RecordsRefused, match=r"refused 1 \(refused_rate_limit\) of 1 records"):
            predict(made, tmp_path / "1.csv", mode="desensitized", ids=["k0007"])
        assert service.stop()[0] == 0


def test_a_hang_up_ends_no_service_and_its_logs_can_be_renamed(sites: Any, tmp_path: Path) -> None:
    with serving(sites) as service:
        predict(sites, tmp_path / "1.csv", ids=["k0001"])
        service.wait_for("session")
        log = sites.shop.run_folder / "log.txt"
        before = log.read_text()
        log.rename(log.with_name("log.txt.1"))
        os.kill(service.process.pid or 0, signal.SIGHUP)
        predict(sites, tmp_path / "2.csv", ids=["k0001"])
        service.wait_for("session", 2)
        assert "session 2: 1 records" in log.read_text()
        assert log.with_name("log.txt.1").read_text() == before
        assert service.stop()[0] == 0


def test_a_policy_for_scores_that_the_shop_demands_is_compared_before_the_first_request(
    sites: Any, tmp_path: Path
) -> None:
    exact = None
    with serving(sites) as service:
        exact = predict(sites, tmp_path / "exact.csv")
        assert service.stop()[0] == 0
    with serving(sites, serve={"reveal": {"top": 3, "round": 1}}) as service:
        with pytest.raises(
            Disagreement, match="revealing of scores: this party plans nothing where top 3; 1 digits was"
        ):
            predict(sites, tmp_path / "none.csv")
        assert "revealing of scores: it plans nothing where top 3; 1 digits was" in service.wait_for("waiting")
        assert not (tmp_path / "none.csv").exists()
        sites.bank.run["reveal"] = {"top": 3, "round": 1}
        try:
            found = predict(sites, tmp_path / "revealed.csv")
        finally:
            sites.bank.run.pop("reveal")
        assert service.stop()[0] == 0
    assert found.columns.tolist() == ["id", "rank", "prediction", "status"]
    best = exact.nlargest(3, "prediction")
    assert set(found["id"]) == set(best["id"])
    assert sorted(found["prediction"]) == sorted(best["prediction"].round(1))


def test_beside_coarse_scores_no_file_compares_exact_ones_with_labels(sites: Any, tmp_path: Path) -> None:
    few = [f"k{i:04}" for i in range(8)]
    kept = [sites.bank.run_folder / name for name in ("fit.json", "metrics.json")]
    with serving(sites) as service:
        exact = predict(sites, tmp_path / "exact.csv", ids=few)["prediction"].tolist()
        # Eight records are a calibration bin each.
        means = [mean for mean, *_ in json.loads(kept[0].read_text())["records scored in mode routed"]["calibration"]]
        assert sorted(means) == sorted(exact)
        before = [path.read_text() for path in kept]
        sites.bank.run["reveal"] = {"round": 1}
        try:
            predict(sites, tmp_path / "rounded.csv", ids=few[:6])
        finally:
            sites.bank.run.pop("reveal")
        assert service.stop()[0] == 0
    assert [path.read_text() for path in kept] == before


def test_only_one_process_serves_a_run_and_only_one_that_is_trained(sites: Any, tmp_path: Path) -> None:
    path = sites.shop.write()
    with StopSignals() as signals:
        with serving(sites), pytest.raises(RunFolderError, match="another process works on the run"):
            serve_until_stopped(path, data=None, insecure=False, terminal=SILENT, signals=signals)
        sites.shop.run["run_id"] = "autumn"
        try:
            with pytest.raises(RunFolderError, match="holds no trained model"):
                serve_until_stopped(sites.shop.write(), data=None, insecure=False, terminal=SILENT, signals=signals)
        finally:
            sites.shop.run["run_id"] = "spring"


def test_a_signal_waits_until_what_is_shielded_is_done() -> None:
    done = []
    with StopSignals() as signals:
        with signals.shielded():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("shielded")
        done.append("beyond")
    assert done == ["shielded"]
    with StopSignals() as signals, signals.shielded():
        with signals.shielded():
            os.kill(os.getpid(), signal.SIGTERM)
        done.append("still shielded")
    assert done == ["shielded", "still shielded"]
    with StopSignals():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        done.append("beyond")
    assert done == ["shielded", "still shielded"]
    with pytest.raises(ProtocolError), StopSignals():
        raise ProtocolError


def test_a_request_that_begins_after_a_lost_signal_is_not_cut_in_its_middle() -> None:
    lost, done = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(1)), []
    with StopSignals() as signals:
        lost()
        with signals.shielded():
            done.append("began")
            time.sleep(0.3)
            done.append("ended")
    assert done == []


def test_a_signal_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads answers and never says so held up the end of a service for a quarter of an hour."""
    monkeypatch.setattr(prediction_service, "FINISH_TIMEOUT_S", 0.2)
    done, began = [], time.monotonic()
    with StopSignals() as signals, signals.shielded():
        os.kill(os.getpid(), signal.SIGTERM)
        done.append("shielded")
        time.sleep(20)
        done.append("beyond")
    assert done == ["shielded"]
    assert 0.2 <= time.monotonic() - began < 10
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_request_whose_answers_fit_no_message_costs_no_memory(sites: Any) -> None:
    """By default the limit is what one message can answer; a smaller one of the run file stays."""
    n_tests = 80_000
    schema = ColumnSchema(name="spend", kind=Kind.NUMERIC, lower=0, upper=100)
    tests = SplitTests((("spend", None),) * n_tests, np.linspace(0, 999, n_tests), np.zeros(n_tests, np.bool_))
    router = Router((ColumnMechanism(schema, MechanismSettings(epsilon=0.5)),), tests)
    records = AnswerableRecords.of(router, pd.Index(["a"], dtype=object), pd.DataFrame({"spend": [3.0]}))
    most = MAX_ARRAY_BYTES // 10_000
    for wanted, allowed in ((None, most), (most + 1, most), (7, 7)):
        answerer = Answerer(router, records, release=lambda *_: [], may_route=True, max_rows=wanted)
        assert answerer.max_rows == allowed
        with pytest.raises(UnexpectedMessage, match=f"at most {allowed} per request"):
            answerer.answer(Ask(ids=("a",) * (allowed + 1), desensitized=False))
        assert answerer.answer(Ask(ids=("a",), desensitized=False)).bits.shape == (1, 10_000)


def test_an_answer_tells_whether_an_id_is_in_the_data_file_and_the_documents_say_so() -> None:
    """Exactly so, for any id that the active party thinks of and in both modes; a refusal of a mode tells nothing."""
    schema = ColumnSchema(name="spend", kind=Kind.NUMERIC, lower=0, upper=100)
    router = Router(
        (ColumnMechanism(schema, MechanismSettings(epsilon=0.5)),), SplitTests((), np.empty(0), np.empty(0, bool))
    )
    held, asked = ["b", "d"], ("a", "b", "c", "d")
    records = AnswerableRecords.of(router, pd.Index(held, dtype=object), pd.DataFrame({"spend": [3.0, 4.0]}))
    for may_route, desensitized in itertools.product((True, False), repeat=2):
        answerer = Answerer(router, records, release=lambda *_: [], may_route=may_route)
        status = answerer.answer(Ask(ids=asked, desensitized=desensitized)).status
        known = [RecordStatus.ANSWERED if one in held else RecordStatus.UNKNOWN for one in asked]
        assert status.tolist() == (known if may_route or desensitized else [RecordStatus.REFUSED_ROUTED] * 4)
    at_a = {row[0]: row[2] for block in leakage_section().blocks if isinstance(block, FigureGrid) for row in block.rows}
    assert "whether B's data file holds any id that A asks for" in at_a["who is in the data"]
    page = (Path(__file__).parents[3] / "docs" / "privacy" / "who-sees-what.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith("| prediction |"))
    assert "for any id that A asks for, whether B's data file holds it" in row


def test_a_service_answers_by_cells_and_counts_their_bits(
    tmp_path: Path, make_sites: Callable[[Path], Any], outcomes: Outcomes
) -> None:
    """Exactly and desensitized, with the bits of a cell's number for each column, whatever the trees are."""
    made = make_sites(tmp_path)
    for site in (made.bank, made.shop):
        site.run |= {"answers": "cells", "held_out": 0.2}
    train(made, outcomes)
    n_bits = n_answer_bits(RunFolder(made.bank.run_folder).load_joint_model().ensemble, "shop")
    assert 2 * 3 <= n_bits <= 2 * 5
    # The limit counts the bits of cells.
    with serving(made, serve={"routed_bits_per_day": 2 * n_bits}) as service:
        with pytest.raises(RecordsRefused):
            predict(made, tmp_path / "routed.csv", ids=["k0001", "k0002", "k0003"])
        assert set(pd.read_csv(tmp_path / "routed.csv")["status"]) == {"ok", "refused_daily_limit"}
        assert predict(made, tmp_path / "drawn.csv", "desensitized", ids=["k0001"])["prediction"].notna().all()
        told = f"answered with {n_bits} bits each, 0 unknown"
        assert f"2 {told}, 1 refused, {2 * n_bits} routed bits" in service.wait_for("session")
        assert f"1 {told}, 0 refused, 0 routed bits" in service.wait_for("session", 2)


def test_a_signal_comes_again_where_a_callback_from_c_lost_its_exception() -> None:
    """Once lost, it was ignored from then on: the service went on until it was killed."""
    lost, done = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(1)), []
    hook = sys.unraisablehook
    with StopSignals():
        lost()
        done.append("callback")
        time.sleep(5)
        done.append("beyond")
    assert done == ["callback"]
    assert sys.unraisablehook is hook


def test_an_active_party_that_comes_and_goes_without_end_fills_no_log_and_every_answer_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    n_sessions, turns = 700, itertools.count()

    def come_and_go(*_: Any, tally: Tally, **__: Any) -> None:
        turn = next(turns)
        if turn == 2 * n_sessions:
            raise Stopped(signal.SIGTERM)
        if turn % 2:
            raise UnexpectedMessage("bank said nothing that is a greeting")
        tally.began = time.monotonic()
        tally.n_requests, tally.n_asked, tally.n_answered, tally.n_routed_bits = 1, 3, 2, 18

    monkeypatch.setattr(prediction_service, "answer_session", come_and_go)
    monkeypatch.setattr(prediction_service, "PAUSE_S", 0)
    with closing(RunLog(tmp_path)) as log:
        answering: Any = SimpleNamespace(n_bits=9)
        channel, others = cast(Any, LeftBehind()), cast(Any, None)
        totals = prediction_service.serve_sessions(
            answering, channel, others, file=others, log=log, signals=StopSignals()
        )
    assert totals.n_answered == 2 * n_sessions
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    said = {event: [line for line in lines if line["event"] == event] for event in ("session", "waiting")}
    assert [len(found) for found in said.values()] == [104, 103]
    assert [
        sum(line[what] for line in said["session"]) for what in ("requests", "records", "answered", "routed_bits")
    ] == [n_sessions * each for each in (1, 3, 2, 18)]
    assert said["session"][99]["message"].startswith("session 100: 3 records in 1 requests")
    assert said["session"][100]["message"].startswith("sessions 101 to 128: 84 records in 28 requests")
    assert said["session"][-1]["message"].startswith("sessions 513 to 700: 564 records in 188 requests")
