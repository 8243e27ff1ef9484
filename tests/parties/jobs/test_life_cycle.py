"""Life cycle of a job: one process at a time, an end that is logged whatever it is, and how to go on after it."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager

import pytest

from parties.config.reading import read_run, read_schema
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import ChainBroken, ConfigError, RunFolderError, Stopped
from parties.jobs.life_cycle import Terminal, TrainingRun, logged, reporting_afterwards
from parties.runs.model_share import KEPT_SCHEMA
from parties.runs.run_log import RunLog
from protocols.errors import PeerLost
from tests.support.sites import Sites


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def training(sites: Sites, said: list[str]) -> TrainingRun:
    path = sites.bank.write()
    return TrainingRun(path, read_run(path, ActiveRun), Terminal(say=said.append, warn=said.append))


def begun(training: TrainingRun, **options: str) -> AbstractContextManager[RunLog]:
    schema, _ = read_schema(training.run.table_schema)
    return training.begin_or_resume(schema, **options)


def last_line(training: TrainingRun) -> dict[str, str]:
    found: dict[str, str] = json.loads((training.folder.path / "log.jsonl").read_text().splitlines()[-1])
    return found


def test_a_finished_run_is_told_and_not_begun_again(training: TrainingRun, said: list[str]) -> None:
    assert not training.is_over()
    with begun(training) as log:
        training.finish(log, [], n_rows=3, n_trees=5)
    meta = training.folder.read_json("meta.json")
    assert (meta["n_rows"], meta["n_trees"], meta["sent_bytes"]) == (3, 5, 0)
    assert training.is_over()
    assert said[-1].endswith("nothing was done")
    with (
        pytest.raises(RunFolderError, match=r"another process has finished the run .* Nothing was sent"),
        begun(training),
    ):
        pass


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ConfigError("wrong key"), "wrong key"),
        (Stopped(15), "this party was told to stop"),
        (ValueError("salary 81726354"), "stopped with ValueError"),
        (KeyboardInterrupt(), "stopped with KeyboardInterrupt"),
    ],
)
def test_an_error_is_the_last_line_of_the_log_and_a_foreign_one_without_its_words(
    training: TrainingRun, error: BaseException, sentence: str
) -> None:
    with pytest.raises(type(error)), begun(training):
        raise error
    assert last_line(training) | {"event": "failed", "message": sentence, "error": type(error).__name__} == last_line(
        training
    )


def lose(training: TrainingRun, error: Exception, *, has_released: bool) -> None:
    with begun(training, resuming="Start it again"):
        if has_released:
            training.folder.mark_release()
        raise error


@pytest.mark.parametrize("kind", [PeerLost, ChainBroken])
@pytest.mark.parametrize(
    ("has_released", "sentence"), [(False, "shop is gone"), (True, "shop is gone. Start it again")]
)
def test_after_a_release_a_lost_peer_is_told_with_how_to_go_on(
    training: TrainingRun, kind: type[Exception], has_released: bool, sentence: str
) -> None:
    with pytest.raises(kind) as found:
        lose(training, kind("shop is gone"), has_released=has_released)
    assert str(found.value) == sentence


def test_a_second_process_is_kept_out(training: TrainingRun) -> None:
    with begun(training), pytest.raises(RunFolderError), begun(training):
        pass


def test_a_job_with_the_model_logs_to_the_run_it_belongs_to(training: TrainingRun, said: list[str]) -> None:
    with begun(training):
        pass
    with logged(training.folder, training.terminal) as log:
        log.step("predicted", "wrote 3 predictions")
    assert last_line(training)["event"] == "predicted"
    assert said[-1] == "wrote 3 predictions"


@pytest.mark.parametrize("is_finished", [False, True])
def test_only_a_finished_run_is_reported_again_and_a_failed_report_is_a_warning(
    training: TrainingRun, said: list[str], is_finished: bool
) -> None:
    run = training.run.model_copy(update={"report": True})
    with begun(training) as log:
        if is_finished:
            training.finish(log, [], n_rows=0)
    said.clear()
    with pytest.raises(ConfigError, match="mine"), reporting_afterwards(training.path, run, training.terminal):
        raise ConfigError("mine")
    assert [line.startswith("the run is done, but its report could not be written") for line in said] == [
        True
    ] * is_finished


def test_the_schema_that_a_run_began_with_is_kept(sites: Sites) -> None:
    path = sites.shop.write()
    training = TrainingRun(path, read_run(path, PassiveRun), Terminal())
    kept, schema = training.folder.path / KEPT_SCHEMA, sites.shop.path / "schema.yaml"
    with begun(training):
        pass
    first = schema.read_text()
    for has_released in (False, True):
        schema.write_text(f"{schema.read_text()}# later\n")
        with begun(training):
            assert kept.read_text() == (schema.read_text() if not has_released else f"{first}# later\n")
            training.folder.mark_release()


def test_a_schema_that_was_edited_since_it_was_read_is_not_kept_as_that_of_the_run(sites: Sites) -> None:
    """Else predictions were compared with another schema than that of the training."""
    path = sites.shop.write()
    training, file = TrainingRun(path, read_run(path, PassiveRun), Terminal()), sites.shop.path / "schema.yaml"
    schema, _ = read_schema(file)
    before = file.read_text()
    file.write_text(before.replace("missing: category", "missing: refuse", 1))
    assert read_schema(file)[0] != schema
    with (
        pytest.raises(ConfigError, match=r"schema\.yaml was changed while it was in use\. Nothing was sent"),
        training.begin_or_resume(schema),
    ):
        pass
    file.write_text(before)
    with training.begin_or_resume(schema):
        assert (training.folder.path / KEPT_SCHEMA).read_text() == before
