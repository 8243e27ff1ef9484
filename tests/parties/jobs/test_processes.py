"""Two organisations as processes of their own: run files, keys and tables on disk, sockets on loopback."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support.processes import finish


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def log_lines(site: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (site.run_folder / "log.jsonl").read_text().splitlines()]


def logged_bytes(site: Any) -> int:
    """What the log says was sent until the training was finished."""
    lines = log_lines(site)
    n_lines = [line["event"] for line in lines].index("finished")
    return sum(line["bytes"] for line in lines[:n_lines] if line["event"] == "sent")


def test_two_processes_train_and_predict_and_keep_nothing_of_each_other(sites: Any) -> None:
    sites.bank.run["correct_noise"] = True
    trained = finish(sites.bank.start("party-a", "--format", "json"), sites.shop.start("party-b"))
    assert [code for code, _, _ in trained] == [0, 0]
    then = {site: f"opboost predict {site.path / 'run.yaml'}" for site in (sites.bank, sites.shop)}
    assert json.loads(trained[0][1]) == {"run_folder": str(sites.bank.run_folder), "next": then[sites.bank]}
    assert trained[1][1] == f"run folder: {sites.shop.run_folder}\nnext: {then[sites.shop]}\n"

    asked = [f"k{i:04}" for i in range(40)]
    (sites.bank.path / "ids.txt").write_text("\n".join(reversed(asked)))
    predicted = finish(
        sites.bank.start("predict", "--ids", str(sites.bank.path / "ids.txt")),
        sites.shop.start("predict", "--format", "json"),
    )
    assert [code for code, _, _ in predicted] == [0, 0]
    assert json.loads(predicted[1][1]) == {"records_answered": 40}
    predictions = pd.read_csv(sites.bank.run_folder / "predictions.csv")
    assert predictions["id"].tolist() == asked
    assert predictions["status"].tolist() == ["ok"] * 40
    assert predictions["prediction"].between(0, 1).all()

    common = {"config.yaml", "guarantee.json", "log.jsonl", "log.txt", "meta.json", "model.json", "schema.yaml"}
    common |= {"trainings.json", "messages.jsonl"}
    bank, shop = ({path.name: path for path in site.run_folder.iterdir()} for site in (sites.bank, sites.shop))
    scored = {"fit.json", "noise.json", "partners.json", "predictions.csv", "metrics.json", "release.json", "received"}
    assert set(bank) - {"progress.json"} == common | scored
    assert set(shop) - {"progress.json"} == common
    metas = {"bank": read_json(bank["meta.json"]), "shop": read_json(shop["meta.json"])}
    assert {name: meta["party"] for name, meta in metas.items()} == {"bank": "bank", "shop": "shop"}
    assert metas["bank"]["sent_bytes"] == metas["shop"]["received_bytes"] == logged_bytes(sites.bank)
    assert metas["shop"]["sent_bytes"] == metas["bank"]["received_bytes"] == logged_bytes(sites.shop)
    bank_bytes, shop_bytes = (
        b"".join(path.read_bytes() for path in site.run_folder.rglob("*") if path.is_file())
        for site in (sites.bank, sites.shop)
    )
    assert not [word for word in (b"spend", b"visits", b"domain_size: ") if word in bank_bytes]
    assert not [word for word in (b'"age"', b'"gains"', b'"covers"') if word in shop_bytes]


def test_two_processes_train_with_xgboost_under_constraints_and_stop_early(sites: Any) -> None:
    """`c0` is the shop's first column, by the name under which its owner offers it."""
    pytest.importorskip("xgboost")
    sites.bank.run["model"] = {
        "engine": "xgboost",
        "n_estimators": 80,
        "max_depth": 3,
        "learning_rate": 0.9,
        "validation_fraction": 0.25,
        "early_stopping_rounds": 4,
        "eval_metric": ["auc", "logloss"],
        "monotone_constraints": {"c0": -1},
        "seed": 1,
    }
    trained = finish(sites.bank.start("party-a"), sites.shop.start("party-b"))
    assert [code for code, _, _ in trained] == [0, 0], trained
    history = read_json(sites.bank.run_folder / "history.json")
    assert list(history["scores"]) == ["auc", "logloss"]
    assert len(history["scores"]["logloss"]) == history["best_round"] + 4 < 80
    document = read_json(sites.bank.run_folder / "model.json")
    assert len(document["trees"]) == history["best_round"]
    of_c0 = [i for i, feature in enumerate(document["features"]) if feature["name"] == "c0"]
    # Customers who spend more have label 1 more often, so a falling score finds little to split on.
    splits = [column for tree in document["trees"] for column in tree["columns"] if column >= 0]
    assert sum(column in of_c0 for column in splits) < len(splits) / 2
    assert not (sites.shop.run_folder / "history.json").exists()


def test_a_fault_is_one_sentence_on_standard_error_and_exit_code_1(sites: Any) -> None:
    sites.bank.table["y"] = sites.bank.table["y"].where(np.arange(len(sites.bank.table)) > 0)
    sites.shop.run["desensitize"]["epsilon"] = -1
    bank, shop = finish(sites.bank.start("party-a"), sites.shop.start("party-b"))
    assert bank == (
        1,
        "",
        f"error: {sites.bank.path / 'data.csv'}: label column 'y' is missing, infinite or not a number in 1 rows\n",
    )
    assert shop == (
        1,
        "",
        f"error: {sites.shop.path / 'run.yaml'}: desensitize.epsilon: must be greater than 0; found -1\n",
    )


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"nothing happened for {seconds} s"
        time.sleep(0.02)


def has_all_ranks(bank: Any) -> bool:
    """Whether the bank has received the shop's ranks, so that it grows trees."""
    path = bank.run_folder / "log.jsonl"
    return path.exists() and path.read_text().count('"rank chunk"') == 2


@pytest.mark.parametrize(
    ("signal_", "victim"),
    [(signal.SIGKILL, "shop"), (signal.SIGKILL, "bank"), (signal.SIGSTOP, "shop")],
    ids=["the shop is killed", "the bank is killed", "the shop is frozen"],
)
def test_a_party_that_dies_or_freezes_ends_the_other_one_in_time(sites: Any, signal_: int, victim: str) -> None:
    # Trees at once: a peer that is lost in the fit of noise correction is noticed in the first round.
    sites.bank.run |= {"model": {"n_estimators": 1_000_000, "max_depth": 6}, "correct_noise": False}
    for site in (sites.bank, sites.shop):
        site.run |= {"timeout": 2, "wait": 4}
    processes = {"bank": sites.bank.start("party-a"), "shop": sites.shop.start("party-b")}
    try:
        wait_for(lambda: has_all_ranks(sites.bank))
        time.sleep(0.2)
        processes[victim].send_signal(signal_)
        struck = time.monotonic()
        (survivor,) = set(processes) - {victim}
        ((code, _, error),) = finish(processes[survivor], seconds=20)
        # A dead peer's connection ends at once; a frozen one is silent for the timeout of 2 s. Both may come back, for
        # 4 s, of which up to 1 s may have passed between two looks before.
        assert 3 <= time.monotonic() - struck < 14
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    assert code == 3
    way_back, phase = {
        "bank": ("did not come back", "growing trees"),
        "shop": ("could not be reached again", "waiting for the trees"),
    }[survivor]
    assert error.splitlines()[-1] == (
        f"error: {victim} closed the connection or was silent for 2 s, and {way_back} within 4 s, while this party was "
        f"{phase}. "
        "Start the same run again on both sides: it goes on where it stopped"
    )
    assert "Traceback" not in error
    site = getattr(sites, survivor)
    assert log_lines(site)[-1]["error"] == "PeerLost"
    assert not (site.run_folder / "model.json").exists()
    assert read_json(site.run_folder / "meta.json")["finished"] is None
