"""Prediction jobs of vertical training: whatever they cannot do is refused before anything is sent."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import yaml

from opboost.trees.losses import Logistic, Loss, Softmax
from opboost.trees.tree import Ensemble, Feature
from parties.cluster import prediction_batches
from parties.errors import ConfigError, Disagreement, RunFolderError, Stopped, TableError
from parties.jobs import predict_vertical
from parties.jobs.answer_vertical import serve_passive
from parties.jobs.life_cycle import Terminal
from parties.jobs.predict_vertical import predict_active
from parties.jobs.serve_scores import serve_scores
from parties.jobs.train_vertical import train_active, train_passive
from parties.runs.joint_model import JointModel
from parties.runs.model_share import KEPT_SCHEMA
from parties.runs.run_folder import RunFolder
from parties.tables.destinations import Destination
from parties.vertical.prediction_server import Answerer
from protocols.messages.prediction import Answers, Ask
from tests.support.addresses import free_addresses
from tests.support.inline_client import inline_cluster
from tests.support.outcomes import outcomes_of
from tests.support.parquet_folders import in_a_folder
from tests.support.processes import FORKS
from tests.support.sites import Sites


def test_without_a_trained_run_nobody_predicts_or_answers(sites: Sites) -> None:
    with pytest.raises(RunFolderError):
        predict_active(
            sites.bank.write(), data=None, ids=None, mode="routed", out=None, insecure=False, terminal=Terminal()
        )
    with pytest.raises(RunFolderError):
        serve_passive(sites.shop.write(), data=None, insecure=False, terminal=Terminal())


def test_nobody_is_asked_where_the_run_file_lacks_one_whose_answers_the_model_needs(sites: Sites) -> None:
    """The others answered, which counted for their limits, and no score came of it."""
    path = sites.bank.write()
    sites.bank.run_folder.mkdir(parents=True)
    features = Feature("age"), Feature("c0", "shop", rank=3), Feature("c1", "broker", rank=7)
    RunFolder(sites.bank.run_folder).save_joint_model(
        JointModel(ensemble=Ensemble((), np.zeros(1), Logistic(), features))
    )
    words = "the model needs answers of broker, whom the run file does not name. Nothing was asked"
    with pytest.raises(Disagreement, match=words):
        predict_active(path, data=None, ids=None, mode="routed", out=None, insecure=False, terminal=Terminal())
    tokens = sites.bank.path / "tokens.txt"
    tokens.touch(mode=0o600)
    sites.bank.run["http"] = {"listen": "127.0.0.1:1", "tokens": tokens.name}
    with pytest.raises(Disagreement, match=words):
        serve_scores(sites.bank.write(), data=None, insecure=False, terminal=Terminal())


def test_a_schema_whose_categories_have_other_numbers_than_in_training_is_refused(sites: Sites) -> None:
    sites.bank.schema["columns"]["town"] = {"kind": "unordered", "categories": ["a", "b", "c"]}
    sites.bank.table["town"] = "b"
    path = sites.bank.write()
    sites.bank.run_folder.mkdir(parents=True)
    model = JointModel(ensemble=Ensemble((), np.zeros(1), Logistic(), (Feature("town"),)))
    RunFolder(sites.bank.run_folder).save_joint_model(model)
    trained_on = {"columns": {"town": {"kind": "unordered", "categories": ["b", "c"]}}}
    (sites.bank.run_folder / KEPT_SCHEMA).write_text(yaml.safe_dump(trained_on))
    with pytest.raises(ConfigError, match="'town' has another kind, or other categories"):
        predict_active(path, data=None, ids=None, mode="local", out=None, insecure=False, terminal=Terminal())
    sites.bank.schema["columns"]["town"]["categories"] = ["b", "c", "a"]
    predict_active(sites.bank.write(), data=None, ids=None, mode="local", out=None, insecure=False, terminal=Terminal())
    given: dict[str, Any] = {"data": None, "ids": None, "mode": "local", "insecure": False, "terminal": Terminal()}
    with pytest.raises(ConfigError, match="holds data that is read"):
        predict_active(path, out=sites.bank.path / "data.csv", overwrite=True, **given)


@pytest.mark.parametrize("label", [2, -1, 0.5])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(2)], ids=lambda loss: loss.name)
def test_records_of_which_some_have_other_labels_than_the_objective_s_are_predicted_and_not_scored(
    sites: Sites, loss: Loss, label: float
) -> None:
    sites.bank.table["y"] = sites.bank.table["y"].astype(float)
    sites.bank.table.loc[3, "y"] = label
    path = sites.bank.write()
    sites.bank.run_folder.mkdir(parents=True)
    ensemble = Ensemble((), np.zeros(loss.n_outputs), loss, (Feature("age"),))
    RunFolder(sites.bank.run_folder).save_joint_model(JointModel(ensemble=ensemble))
    metrics: list[Any] = []
    given: dict[str, Any] = {"data": None, "ids": None, "mode": "local", "out": None, "insecure": False}
    written = predict_active(path, **given, terminal=Terminal(), scored=metrics.append)
    assert len(pd.read_csv(written)) == len(sites.bank.table)
    assert metrics == [{}]
    assert "metrics are left out: " in (sites.bank.run_folder / "log.txt").read_text()


@pytest.mark.parametrize(
    ("change", "by"),
    [
        ({}, "partitions"),
        ({"ids": Path("ids.txt")}, "partitions"),
        ({"mode": "local"}, "whole"),
        ({"reasons": 3}, "whole"),
    ],
)
def test_a_folder_is_scored_by_its_partitions_or_as_one_table(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], by: str
) -> None:
    class Model:
        routers: ClassVar[dict[str, Any]] = {}
        check_asked = Mock()

        class ensemble:  # noqa: N801
            loss, features = None, ()

    def read(way: str) -> Any:
        def refuse(*given: Any, **named: Any) -> Any:
            raise RunFolderError(way)

        return refuse

    monkeypatch.setattr(predict_vertical.RunFolder, "load_joint_model", lambda self: Model)
    monkeypatch.setattr(predict_vertical, "check_reasons", lambda ensemble, reveal: None)
    monkeypatch.setattr(predict_vertical, "_predict_partitions", read("partitions"))
    monkeypatch.setattr(predict_vertical, "_records", read("whole"))
    (sites.bank.path / "parts").mkdir()
    sites.bank.run |= {"engine": "dask", "dask": {}, "data": "parts", "model": {}}
    monkeypatch.setattr("parties.config.score_policy.RevealSection.check", lambda self, loss: None)
    given: dict[str, Any] = {"ids": None, "mode": "routed", "reasons": 0} | change
    with pytest.raises(RunFolderError, match=by):
        predict_active(sites.bank.write(), data=None, out=None, insecure=False, terminal=Terminal(), **given)


def _with_a_model_of_own_columns(sites: Sites, loss: Loss | None = None) -> Path:
    """The bank's run file, whose run folder has a model without trees."""
    loss = loss or Logistic()
    path = sites.bank.write()
    sites.bank.run_folder.mkdir(parents=True)
    RunFolder(sites.bank.run_folder).save_joint_model(
        JointModel(ensemble=Ensemble((), np.zeros(loss.n_outputs), loss, (Feature("age"),)))
    )
    return path


def test_what_lies_where_predictions_could_not_be_written_is_not_replaced_unasked(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note of the request stayed, which stands for predictions that an earlier process has written."""
    path = _with_a_model_of_own_columns(sites)
    out, full = tmp_path / "scores.csv", RunFolderError("no room")
    given: dict[str, Any] = {"data": None, "ids": None, "mode": "local", "out": out, "insecure": False}
    with monkeypatch.context() as patch:
        patch.setattr(Destination, "_write", Mock(side_effect=full))
        with pytest.raises(RunFolderError, match=r"no room\. The predictions are in .*/predictions\.\w+\.csv"):
            predict_active(path, **given, terminal=Terminal())
    out.write_text("of somebody else\n")
    with pytest.raises(ConfigError, match=r"exists; give another file"):
        predict_active(path, **given, terminal=Terminal())
    assert out.read_text() == "of somebody else\n"


def test_a_file_of_one_name_in_another_folder_is_not_what_a_stopped_request_wrote(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions of another month, in a folder of their own, were replaced without being asked."""
    path = _with_a_model_of_own_columns(sites)
    given: dict[str, Any] = {"data": None, "ids": None, "mode": "local", "out": "scores.csv", "insecure": False}
    (may := tmp_path / "may").mkdir()
    (june := tmp_path / "june").mkdir()
    (may / "scores.csv").write_text("of May\n")
    monkeypatch.chdir(june)
    with monkeypatch.context() as patch:
        patch.setattr(predict_vertical, "score", Mock(side_effect=RunFolderError("no room for metrics")))
        with pytest.raises(RunFolderError, match="no room for metrics"):
            predict_active(path, **given, terminal=Terminal())
    monkeypatch.chdir(may)
    with pytest.raises(ConfigError, match=r"scores\.csv exists; give another file"):
        predict_active(path, **given, terminal=Terminal())
    assert (may / "scores.csv").read_text() == "of May\n"
    monkeypatch.chdir(june)
    assert predict_active(path, **given, terminal=Terminal()) == Path("scores.csv")


def _stop_behind_the_predictions(patch: pytest.MonkeyPatch, path: Path, given: dict[str, Any]) -> None:
    """Have a process told to stop when its predictions are written, and its metrics and report are not."""
    with patch.context() as stopping:
        stopping.setattr(predict_vertical, "score", Mock(side_effect=Stopped(signal.SIGTERM)))
        with pytest.raises(Stopped):
            predict_active(path, **given, terminal=Terminal())


def _be_killed_behind_the_predictions(path: Path, given: dict[str, Any]) -> None:
    predict_vertical.score = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    predict_active(path, **given, terminal=Terminal())


@pytest.mark.parametrize("changed", ["records", "listed records", "cells", "score policy", "predictions", "nothing"])
def test_a_request_that_is_begun_again_knows_what_it_wrote_and_nothing_else(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """Predictions of a month, whose process was stopped before its report, gave way to those of the next month."""
    path, out = _with_a_model_of_own_columns(sites), tmp_path / "scores.csv"
    (tmp_path / "ids.txt").write_text("".join(f"{one}\n" for one in sites.bank.table["id"][:9]))
    given: dict[str, Any] = {"data": None, "ids": None, "mode": "local", "out": out, "insecure": False}
    _stop_behind_the_predictions(monkeypatch, path, given)
    match changed:
        case "records":
            sites.bank.table = sites.bank.table.iloc[:100]
        case "listed records":
            given["ids"] = tmp_path / "ids.txt"
        case "cells":
            sites.bank.table.loc[0, "age"] += 1
        case "score policy":
            sites.bank.run["reveal"] = {"bins": 4}
        case "predictions":
            out.write_text(f"{out.read_text()}k9999,0.5,ok\n")
    sites.bank.write()
    before = out.read_bytes(), out.stat().st_ino
    if changed == "nothing":
        said: list[str] = []
        heard = {"terminal": Terminal(warn=said.append), "unasked": (unasked := Mock())}
        assert predict_active(path, **given, **heard) == out
        unasked.assert_called_once_with()
        assert "scores.csv holds the predictions of this very request" in " ".join(said)
        assert not (sites.bank.run_folder / "predicting.json").exists()
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"scores\.csv exists; give another file"):
            predict_active(path, **given, terminal=Terminal())
    assert (out.read_bytes(), out.stat().st_ino) == before


def test_a_request_that_replaces_predictions_makes_them_anew_and_forgets_those_that_were_there(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with those of an earlier night; and once it was stopped itself, the next one did."""
    path, out = _with_a_model_of_own_columns(sites), tmp_path / "scores.csv"
    given: dict[str, Any] = {"data": None, "ids": None, "mode": "local", "out": out, "insecure": False}
    _stop_behind_the_predictions(monkeypatch, path, given)
    before = out.stat().st_ino
    with monkeypatch.context() as stopping:
        stopping.setattr(predict_vertical, "predict_locally", Mock(side_effect=Stopped(signal.SIGTERM)))
        with pytest.raises(Stopped):
            predict_active(path, **given, overwrite=True, terminal=Terminal())
    with pytest.raises(ConfigError, match=r"scores\.csv exists; give another file"):
        predict_active(path, **given, terminal=Terminal())
    assert out.stat().st_ino == before
    _stop_behind_the_predictions(monkeypatch, path, {**given, "overwrite": True})
    assert predict_active(path, **given, overwrite=True, terminal=Terminal()) == out
    assert out.stat().st_ino != before
    assert not (sites.bank.run_folder / "predicting.json").exists()


@pytest.mark.parametrize("how", [{}, {"append": True}], ids=["", "append"])
def test_a_request_that_is_begun_again_replaces_no_table_unasked_and_adds_to_none(
    sites: Sites, tmp_path: Path, how: dict[str, bool]
) -> None:
    """Its table was dropped, with the rows that another program had added; or its rows were there twice."""
    pytest.importorskip("adbc_driver_sqlite")
    path, place = _with_a_model_of_own_columns(sites), tmp_path / "scores.db"
    out = f"sqlite://{place}#scores"
    given: dict[str, Any] = {"data": None, "ids": None, "mode": "local", "out": out, "insecure": False, **how}
    process = FORKS.Process(target=_be_killed_behind_the_predictions, args=(path, given))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    with closing(sqlite3.connect(place)) as database, database:
        database.execute("INSERT INTO scores VALUES ('other', 0.5, 'ok')")
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"table 'scores' of .*\.db may hold the predictions of this very request"
        ):
            predict_active(path, **given, terminal=Terminal())
    with closing(sqlite3.connect(place)) as database:
        assert database.execute("SELECT COUNT(*) FROM scores").fetchone() == (len(sites.bank.table) + 1,)
        if how:
            database.execute("DROP TABLE scores")
    predict_active(path, **{**given, "overwrite": not how}, terminal=Terminal())
    with closing(sqlite3.connect(place)) as database:
        assert database.execute("SELECT COUNT(*) FROM scores").fetchone() == (len(sites.bank.table),)
    assert not (sites.bank.run_folder / "predicting.json").exists()


def test_a_list_of_the_best_records_is_added_to_the_table_that_another_made(sites: Sites, tmp_path: Path) -> None:
    """Ranks are integers, for which no column of any table was good enough."""
    pytest.importorskip("adbc_driver_sqlite")
    sites.bank.run["reveal"] = {"top": 3}
    path, file = _with_a_model_of_own_columns(sites), tmp_path / "scores.db"
    given: dict[str, Any] = {"data": None, "ids": None, "mode": "local", "out": f"sqlite://{file}#best", "append": True}
    for _ in range(2):
        predict_active(path, **given, insecure=False, terminal=Terminal())
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT rank, prediction, status FROM best").fetchall() == [(1, 0.5, "ok")] * 6


@pytest.mark.parametrize(
    ("columns", "asked", "words"),
    [
        ("id TEXT, prediction REAL, status INTEGER", {}, "'status' .* is of type INTEGER, and texts"),
        ("id TEXT, prediction REAL, status TEXT", {"reveal": {"top": 9}}, "'rank' cannot be written"),
        ("id TEXT, prediction REAL, rank TEXT, status TEXT", {"reveal": {"top": 9}}, "'rank' .* TEXT, and integers"),
        ("id TEXT, prediction REAL, status TEXT", {"reveal": {"bins": 4}}, "'prediction' .* REAL, and texts"),
        ("id TEXT, prediction TEXT, status TEXT", {"reveal": {"round": 2}}, "'prediction' .* TEXT, and numbers"),
        ("id TEXT, prediction REAL, status TEXT", {"reasons": 1}, "'reason_1' cannot be written"),
        ("id TEXT, prediction REAL, status TEXT, reason_1 REAL", {"reasons": 1}, "'reason_1' .* REAL, and texts"),
        ("id TEXT, prediction REAL, status TEXT", {"id": ["id", "branch"]}, r"'id\.id' cannot be written"),
        ("id TEXT, prediction REAL, status TEXT", {"classes": 3}, "'probability_0' cannot be written"),
    ],
)
def test_where_a_table_cannot_take_the_predictions_nobody_is_asked(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str, asked: dict[str, Any], words: str
) -> None:
    """Its columns were looked at when passive parties had answered, and counted that."""
    pytest.importorskip("adbc_driver_sqlite")
    sites.bank.run["reveal"] = asked.get("reveal", {})
    if "id" in asked:
        sites.bank.schema["id"], sites.bank.table["branch"] = asked["id"], "north"
    path = _with_a_model_of_own_columns(sites, Softmax(asked["classes"]) if "classes" in asked else Logistic())
    with closing(sqlite3.connect(tmp_path / "scores.db")) as database, database:
        database.execute(f"CREATE TABLE scores ({columns})")
    monkeypatch.setattr(predict_vertical, "open_connections", Mock(side_effect=AssertionError("somebody is asked")))
    given: dict[str, Any] = {"data": None, "ids": None, "mode": "routed", "reasons": asked.get("reasons", 0)}
    out = f"sqlite://{tmp_path}/scores.db#scores"
    with pytest.raises(TableError, match=rf"^no row was added: column {words}.*\. Nothing was sent$"):
        predict_active(path, **given, out=out, append=True, insecure=False, terminal=Terminal())


def _answer_until(path: Path, n_requests: int) -> None:
    """Answer a prediction in a process that is killed by this request, before it is charged."""
    answer, seen = Answerer.answer, list[Ask]()

    def counted(self: Answerer, ask: Ask) -> Answers:
        seen.append(ask)
        if len(seen) == n_requests:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer(self, ask)

    Answerer.answer = counted  # type: ignore[method-assign]
    serve_passive(path, data=None, insecure=False, terminal=Terminal())


@pytest.mark.parametrize("n_requests", [5, 7], ids=["within a partition", "between partitions"])
@pytest.mark.parametrize("engine", ["dask", "native"])
def test_a_shop_that_is_killed_and_started_again_answers_for_every_record_once(
    sites: Sites, outcomes: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, engine: str, n_requests: int
) -> None:
    """The bank's prediction of partitions ended, and what was answered until then counted for the daily limit."""
    monkeypatch.setattr(prediction_batches, "cluster", inline_cluster)
    sites.bank.run["model"] = {"engine": "native", "n_estimators": 3, "max_depth": 2}
    given: dict[str, Any] = {"insecure": False, "terminal": Terminal()}
    paths = sites.bank.write(), sites.shop.write()
    calls = {"bank": lambda: train_active(paths[0], **given), "shop": lambda: train_passive(paths[1], **given)}
    assert not [one for one in outcomes(calls).values() if isinstance(one, BaseException)]
    n_bits = RunFolder(sites.shop.run_folder).load_router().tests.n_bits
    sites.shop.run["serve"] = {"batch_rows": 50, "routed_bits_per_day": n_bits * len(sites.bank.table)}
    in_a_folder(sites.bank.table.sort_values("id"), sites.bank.path / "parts", 3)
    if engine == "dask":
        sites.bank.run |= {"engine": "dask", "dask": {}}
    sites.bank.write(), sites.shop.write()
    asked = {"data": sites.bank.path / "parts", "ids": None, "mode": "routed", **given}

    def answer() -> int | None:
        for n in (n_requests, 0):
            process = FORKS.Process(target=_answer_until, args=(paths[1], n), daemon=True)
            process.start()
            process.join(60)
        return process.exitcode

    out = sites.bank.path / ("scores" if engine == "dask" else "scores.csv")
    found = outcomes({"bank": lambda: predict_active(paths[0], out=out, **asked), "shop": answer})
    assert found == {"bank": out, "shop": 0}
    assert (sites.bank.run_folder / "log.txt").read_text().count("begins again from the greeting on") == 1
    scores = pd.read_parquet(out) if engine == "dask" else pd.read_csv(out)
    assert scores["id"].tolist() == sorted(sites.bank.table["id"])
    assert scores["status"].tolist() == ["ok"] * len(scores)


@pytest.mark.parametrize("answers", ["tests", "cells"])
def test_shares_of_two_trainings_of_one_run_do_not_predict_together(
    sites: Sites, outcomes: Callable[..., dict[str, Any]], answers: str
) -> None:
    (address,) = free_addresses(1)
    common = {"run_id": "spring", "answers": answers}
    sites.bank.run |= {**common, "listen": address, "model": {"n_estimators": 3, "max_depth": 2}}
    sites.shop.run |= {**common, "connect": address}
    bank, shop = sites.bank.write(), sites.shop.write()
    common = {"insecure": False, "terminal": Terminal()}

    def train() -> None:
        outcomes({"bank": lambda: train_active(bank, **common), "shop": lambda: train_passive(shop, **common)})

    def predict() -> dict[str, Any]:
        asked = {"data": None, "ids": None, "mode": "routed", "out": None, "overwrite": True, **common}
        return outcomes(
            {"bank": lambda: predict_active(bank, **asked), "shop": lambda: serve_passive(shop, data=None, **common)}
        )

    train()
    assert not isinstance(predict()["bank"], BaseException)
    earlier = sites.bank.path / "earlier"
    sites.bank.run_folder.rename(earlier)
    # Its ledger as well, so that another release is drawn.
    shutil.rmtree(sites.shop.run_folder.parent)
    train()
    assert not isinstance(predict()["bank"], BaseException)
    shutil.rmtree(sites.bank.run_folder)
    earlier.rename(sites.bank.run_folder)
    before = (earlier_predictions := sites.bank.run_folder / "predictions.csv").read_bytes()
    found = predict()
    assert all("is of another training of this run" in str(error) for error in found.values())
    assert earlier_predictions.read_bytes() == before


def test_a_bank_that_holds_the_shops_columns_reads_them_as_the_shop_does(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took 1.234,5 for 1.2 and -9 for a number, without a word; a number outside the shop's bounds is told."""
    bank, shop = sites.bank, sites.shop
    spend = 100 * shop.table["spend"]
    shop.table["spend"] = [f"{value:_.1f}".replace(".", ",").replace("_", ".") for value in spend]
    shop.table["visits"] = shop.table["visits"].fillna(-9).astype(int)
    days = pd.Timestamp("2000-01-01") + pd.to_timedelta(spend.round(), unit="D")
    shop.table["since"] = days.dt.strftime("%d.%m.%Y")
    times = {"kind": "date", "format": "%d.%m.%Y", "lower": "2000-01-01", "upper": "2030-01-01"}
    shop.schema["columns"] |= {"since": times, "spend": {"lower": 0, "upper": 10_000}}
    shop.schema["reader"] = {"decimal": ",", "thousands": ".", "na_values": ["-9"]}
    shop.run |= {"share_thresholds": True, "desensitize": {"epsilon": 1.0}}
    bank.schema["reader"] = {"na_values": ["17"]}
    # Keys need not stand in the schema, and what is left out is no business of the bank's.
    for site in (bank, shop):
        site.table["mail"] = site.table["id"] + "@example.org"
        site.schema["ignore"] = ["mail"] if site is shop else []
        site.run["align"] = {"method": "psi", "keys": ["mail"]}
    shop.table["visited"] = shop.table["since"]
    shop.schema["columns"]["visited"] = times
    shop.run["desensitize"]["leave_out"] = ["visited"]
    given: dict[str, Any] = {"insecure": False, "terminal": Terminal()}
    paths = bank.write(), shop.write()
    calls = {"bank": lambda: train_active(paths[0], **given), "shop": lambda: train_passive(paths[1], **given)}
    assert not [one for one in outcomes_of(calls).values() if isinstance(one, BaseException)]
    asked = {
        "bank": lambda: predict_active(
            paths[0], data=None, ids=None, mode="routed", out=tmp_path / "routed.csv", **given
        ),
        "shop": lambda: serve_passive(paths[1], data=None, **given),
    }
    assert not [one for one in outcomes_of(asked).values() if isinstance(one, BaseException)]
    assert "visited" not in (bank.run_folder / "partners.json").read_text()
    in_clear = bank.table.merge(shop.table.drop(columns=["mail", "visited"]), on="id")
    in_clear.to_csv(tmp_path / "both.csv", index=False)
    scores = pd.read_csv(tmp_path / "routed.csv")
    request: dict[str, Any] = {"ids": None, "mode": "local", **given}
    alone = predict_active(paths[0], data=tmp_path / "both.csv", out=tmp_path / "local.csv", **request)
    pd.testing.assert_frame_equal(pd.read_csv(alone), scores, check_exact=True)
    in_clear.loc[:2, "spend"] = "99.999,0"
    in_clear.to_csv(tmp_path / "other.csv", index=False)
    predict_active(paths[0], data=tmp_path / "other.csv", out=tmp_path / "outside.csv", **request)
    said = (bank.run_folder / "log.txt").read_text()
    assert said.count("3 values of shop's spend lie outside its public bounds and count as these") == 1
    assert said.count("lie outside") == 1
    read = predict_vertical.read_keyed

    def replaced(path: Path, *given: Any, **named: Any) -> Any:
        """Another file takes the place of the one that was read, as every night."""
        table = read(path, *given, **named)
        (tmp_path / "other.csv").replace(path)
        return table

    monkeypatch.setattr(predict_vertical, "read_keyed", replaced)
    with pytest.raises(TableError, match="was changed while it was in use"):
        predict_active(paths[0], data=tmp_path / "both.csv", out=tmp_path / "mixed.csv", **request)
