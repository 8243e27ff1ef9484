"""Run history: what the log says left, without folders, and a line that a crash cut short is left out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from parties.config.reading import read_run
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import RunFolderError
from parties.reports.log_lines import log_lines
from parties.reports.run_history import meta_of, run_history
from parties.reports.run_page import history_sections
from parties.reports.run_status import run_status
from parties.runs.run_folder import RunFolder
from tests.support.sites import Sites

AT = {"time": "2026-01-01T00:00:00", "seconds": 1.0}
SENT = {**AT, "event": "sent", "peer": "shop", "kind": "hello", "bytes": 9, "sha256": "ab"}


@pytest.fixture
def run(sites: Sites) -> ActiveRun:
    path = sites.bank.write()
    run = read_run(path, ActiveRun)
    RunFolder(run.run_folder).create(path, party="bank", role="active")
    return run


def history(run: ActiveRun | PassiveRun, *lines: dict[str, Any], cut: str = "") -> Any:
    folder = RunFolder(run.run_folder)
    (folder.path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + cut)
    folder.finish(n_rows=3, sent_bytes=18)
    return run_history(run, ("shop",), folder, "a seed")


def test_messages_before_and_after_the_end_of_training_are_told_apart(run: ActiveRun) -> None:
    done = {**AT, "event": "finished", "message": "finished"}
    used = {**AT, "event": "predicted", "message": "wrote 5", "records": 5}
    found = history(run, SENT, done, SENT, used, cut='{"event": "sent", "ti')
    assert (len(found.outgoing), found.n_trained) == (2, 1)
    assert [(one.n_records, one.n_answered) for one in found.predictions] == [(5, None)]
    assert [step.event for step in found.steps] == ["finished", "predicted"]
    assert (found.n_records, found.sent_bytes, found.randomness) == (3, 18, "a seed")


def test_a_list_that_lacks_parts_of_the_log_does_not_say_that_it_has_everything(run: ActiveRun) -> None:
    """Logs may be removed at any time; the run folder keeps how many bytes left in training."""
    done = {**AT, "event": "finished", "message": "finished"}
    used = {**AT, "event": "answered", "message": "answered", "records": 5, "answered": 5, "routed_bits": 10}
    for lines, is_cut in (((SENT, SENT, done, used), False), ((SENT, done, used), True), ((SENT, SENT, used), True)):
        found = history(run, *lines)
        assert found.is_cut is is_cut
        text = " ".join(str(section) for section in history_sections(found))
        assert ("Everything that left" in text) is not is_cut
        assert ("Parts of the log are gone" in text) is is_cut
        assert ("It answered for at least 5 records" in text) is is_cut


def test_what_all_attempts_sent_is_added_up_and_the_last_ones_log_has_all_of_its_bytes(run: ActiveRun) -> None:
    """The bytes of the last process stood for the run's, and lines that it lost were hidden by an earlier one's."""
    again = {**AT, "event": "resumed", "message": "bank takes up run 'spring' where it stopped"}
    done = {**AT, "event": "finished", "message": "finished"}
    received = {**SENT, "event": "received", "bytes": 5}
    found = history(run, SENT, SENT, SENT, received, again, SENT, received, SENT, done, SENT, received)
    assert (found.sent_bytes, found.received_bytes, found.is_cut) == (45, 10, False)
    assert history(run, SENT, SENT, SENT, again, SENT, done).is_cut
    # An attempt of which every line is gone; and one that lost its first ones.
    assert history(run, again, SENT, SENT, done).is_cut
    one, two = ({**SENT, "number": number} for number in (1, 2))
    assert not history(run, one, two, again, one, two, done).is_cut
    assert history(run, two, again, one, two, done).is_cut
    # Of three attempts the one in the middle is gone.
    folder = RunFolder(run.run_folder)
    folder.write_json("meta.json", {**folder.read_json("meta.json"), "resumed": [AT["time"]] * 2})
    assert history(run, one, again, one, two, done).is_cut
    assert not history(run, one, again, one, again, one, two, done).is_cut


def test_exact_answers_about_held_out_records_are_told_beside_predictions(run: ActiveRun) -> None:
    told = {**AT, "event": "held out", "message": "answered for 4 of 5 held-out records, with 8 routed bits"}
    told |= {"records": 5, "answered": 4, "routed_bits": 8}
    found = history(run, SENT, told, {**AT, "event": "finished", "message": "finished"})
    assert (found.held_out.n_answered, found.held_out.n_routed_bits, found.predictions) == (4, 8, ())
    text = " ".join(str(section) for section in history_sections(found))
    assert f"In training {found.party} answered for 4 of 5 held-out records, with 8 routed bits: these answers" in text
    assert history(run, SENT).held_out is None


def test_answers_about_held_out_records_of_all_attempts_are_told(run: ActiveRun) -> None:
    """Those of the last attempt alone were told: whoever begins again with one of the records hides the others."""
    told = {**AT, "event": "held out", "message": "answered for 1 of 1 held-out records"}
    lines = [{**told, "records": n, "answered": n - 1, "routed_bits": 12 * n} for n in (135, 2)]
    found = history(run, SENT, *lines, {**AT, "event": "finished", "message": "finished"})
    assert (found.held_out.n_records, found.held_out.n_answered, found.held_out.n_routed_bits) == (137, 135, 1644)
    text = " ".join(str(section) for section in history_sections(found))
    assert "answered for 135 of 137 held-out records, which were not released, with 1644 routed bits, in 2" in text


def test_a_service_that_runs_or_was_killed_has_answered_at_least_what_is_logged(sites: Sites) -> None:
    path = sites.shop.write()
    run = read_run(path, PassiveRun)
    RunFolder(run.run_folder).create(path, party="shop", role="passive")
    steps = ("serving", "stopped", "answering", "finished")
    serving, stopped, answering, finished = ({**AT, "event": event, "message": event} for event in steps)
    answered = {**AT, "event": "answered", "message": "answered", "records": 5, "answered": 5, "routed_bits": 10}
    session = {**answered, "event": "session"}
    for lines, is_short in (
        ((serving, session, stopped), False),
        ((serving, session), True),
        # Whatever followed, what was killed has lost its last answers.
        ((serving, serving, session, stopped), True),
        ((serving, session, stopped, answering), True),
        ((answering, answered), False),
        # An earlier version said no beginning.
        ((answered, serving, session, stopped), False),
        ((answered, serving, session), True),
    ):
        found = history(run, SENT, SENT, finished, *lines)
        assert found.lacks_answers is is_short
        n = sum(line.get("answered", 0) for line in lines)
        text = " ".join(str(section) for section in history_sections(found))
        at_least = "at least " * is_short
        assert f"It answered for {at_least}{n} records, with {at_least}{2 * n} exact routing bits." in text
        assert ("was killed" in text) is is_short
    text = " ".join(str(section) for section in history_sections(history(run, SENT, SENT, finished, serving)))
    assert "It answered for at least 0 records" in text


def test_messages_of_a_service_whose_lines_are_gone_are_counted(run: ActiveRun) -> None:
    done = {**AT, "event": "finished", "message": "finished"}
    parts = [{**AT, "event": "messages", "message": "a part", "messages": n, "sha256": "ab"} for n in (5, 3)]
    for name, n_lines in {"messages.jsonl.1": 3, "messages.jsonl": 2}.items():
        (run.run_folder / name).write_text(n_lines * (json.dumps(SENT) + "\n"))
    assert history(run, SENT, done, parts[1]).n_dropped == 0
    found = history(run, SENT, done, *parts)
    assert (len(found.outgoing), found.n_trained, found.n_dropped) == (6, 1, 5)
    # While a part is compressed, it counts once.
    compressed = gzip.compress((run.run_folder / "messages.jsonl.1").read_bytes())
    for content in (compressed[:9], compressed):
        (run.run_folder / "messages.jsonl.1.gz").write_bytes(content)
        assert history(run, SENT, done, *parts).n_dropped == 5
    text = " ".join(str(section) for section in history_sections(found))
    assert "5 more messages of services, sent and received, are not listed any more" in text
    assert "at least 5 messages" in text
    assert "Everything that left" not in text


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("{folder}/runs/spring is free", "runs/spring is free"),
        ("read /home/me/data/x.csv", "read x.csv"),
        ("listens at tcp://127.0.0.1:5555", "listens at tcp://127.0.0.1:5555"),
    ],
)
def test_a_step_names_files_without_their_folders(run: ActiveRun, said: str, shown: str) -> None:
    message = said.replace("{folder}", str(run.run_folder.parent.parent))
    (step,) = history(run, {**AT, "event": "x", "message": message}).steps
    assert step.message in (shown, shown.removeprefix("runs/"))
    assert str(run.run_folder.parent) not in step.message


@pytest.mark.parametrize(
    "line",
    [
        7,
        "x",
        None,
        [],
        {},
        {**SENT, "bytes": "9"},
        {**SENT, "peer": 3},
        {**AT, "event": "x", "message": "y", "seconds": []},
    ],
)
def test_a_line_of_another_form_is_refused_in_words(run: ActiveRun, line: Any) -> None:
    with pytest.raises(RunFolderError, match=r"log\.jsonl: line 2 is not one that a run writes"):
        history(run, SENT, line)
    with pytest.raises(RunFolderError, match=r"log\.jsonl: line 2 is not one that a run writes"):
        run_status(run.run_folder.parent.parent / "run.yaml")


def test_a_run_that_is_not_finished_or_whose_log_is_damaged_is_refused(run: ActiveRun, tmp_path: Path) -> None:
    folder = RunFolder(run.run_folder)
    with pytest.raises(RunFolderError, match="holds no finished run"):
        meta_of(folder)
    with pytest.raises(RunFolderError, match="line 1 is not one that a run writes"):
        history(run, {"event": "sent"})
    meta = folder.read_json("meta.json")
    folder.write_json("meta.json", {**meta, "n_rows": "x"})
    with pytest.raises(RunFolderError, match="malformed at n_rows"):
        meta_of(folder)
    folder.write_json("meta.json", meta)
    for name, wrong in {"resumed": [1], "started": 5, "packages": {"numpy": []}}.items():
        folder.write_json("meta.json", {**folder.read_json("meta.json"), name: wrong})
        with pytest.raises(RunFolderError, match=f"meta.json is malformed at .*{name}"):
            meta_of(folder)
    folder.write_json("meta.json", meta)
    (folder.path / "log.jsonl").unlink()
    with pytest.raises(RunFolderError, match=r"log\.jsonl cannot be read"):
        log_lines(folder)
