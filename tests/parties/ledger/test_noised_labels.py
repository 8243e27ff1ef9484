"""Labels under `label_epsilon`: what a passive party sees is a function of noised labels, drawn once per record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.desensitize import exact
from opboost.errors import ParameterError
from opboost.label_noise import decode_labels, encode_labels, label_mechanism
from opboost.trees.losses import Logistic, Poisson, Softmax, SquaredError
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun
from parties.errors import ConfigError
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.ledger.noised_labels import LabelNoise
from parties.ledger.release_ledger import Ledger
from parties.reports.writing import finished_report
from parties.vertical import party_a

Outcomes = Callable[..., dict[str, Any]]
SILENT = Terminal()


def train_both(sites: Any, outcomes: Outcomes) -> dict[str, Any]:
    bank, shop = sites.bank.write(), sites.shop.write()
    return outcomes(
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
        }
    )


def with_epsilon(sites: Any, epsilon: float = 1.0) -> Any:
    sites.bank.run["label_epsilon"] = epsilon
    sites.bank.run["correct_noise"] = True
    sites.bank.run["model"] |= {"seed": 4}
    sites.shop.run["seed"] = 7
    return sites


def test_what_the_passive_party_receives_does_not_depend_on_labels_that_have_the_same_noised_ones(
    sites: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noised labels are fixed; then true labels are exchanged, and the shop gets the same bytes."""
    with_epsilon(sites)
    noised = (np.arange(400) % 3 == 0).astype(float)
    monkeypatch.setattr(LabelNoise, "draw", lambda self, labels, ids, **_: noised[: len(labels)])
    found = {}
    for run_id, flip in (("one", False), ("two", True)):
        for site in (sites.bank, sites.shop):
            site.run |= {"run_id": run_id, "held_out": 0}
        if flip:
            sites.bank.table["y"] = 1 - sites.bank.table["y"]
        ended = train_both(sites, outcomes)
        lines = map(json.loads, (ended["shop"].path / "log.jsonl").read_text().splitlines())
        got = [line["sha256"] for line in lines if (line["event"], line.get("kind")) == ("received", "split ranks")]
        found[run_id] = got, (ended["bank"].path / "model.json").read_text()
    assert found["one"][0] == found["two"][0]
    assert len(found["one"][0]) == 1
    # The leaves, which stay, are those of the true labels.
    assert found["one"][1] != found["two"][1]


def test_without_label_epsilon_they_do_depend_on_them(sites: Any, outcomes: Outcomes) -> None:
    """The broken twin of the test above."""
    with_epsilon(sites)
    del sites.bank.run["label_epsilon"]
    found = []
    for run_id in ("one", "two"):
        for site in (sites.bank, sites.shop):
            site.run |= {"run_id": run_id, "held_out": 0}
        if run_id == "two":
            # Other labels, which are not only these with their classes exchanged.
            sites.bank.table["y"] = sites.bank.table["y"].to_numpy()[::-1].copy()
        ended = train_both(sites, outcomes)
        lines = map(json.loads, (ended["shop"].path / "log.jsonl").read_text().splitlines())
        found.append([line["sha256"] for line in lines if line.get("kind") == "split ranks"])
    assert found[0] != found[1]


def test_a_record_keeps_its_noised_label_in_every_run_and_pays_once(sites: Any, outcomes: Outcomes) -> None:
    with_epsilon(sites)
    drawn: list[np.ndarray] = []
    grow = party_a.grow_trees

    def watched(job: Any, *arguments: Any, **settings: Any) -> Any:
        if job.noised_labels is not None:
            drawn.append(job.noised_labels)
        return grow(job, *arguments, **settings)

    party_a.grow_trees = watched
    try:
        for run_id in ("one", "two"):
            for site in (sites.bank, sites.shop):
                site.run["run_id"] = run_id
            ended = train_both(sites, outcomes)
    finally:
        party_a.grow_trees = grow
    one, two = drawn
    assert one.tolist() == two.tolist()
    labels = sites.bank.table.sort_values("id")["y"].to_numpy()
    # Kept with probability e/(1 + e) = .731: 4 standard deviations of 400 coins.
    assert abs((one == labels).mean() - np.e / (1 + np.e)) < 4 * np.sqrt(0.731 * 0.269 / 400)
    with Ledger(sites.bank.path / "runs/labels.sqlite") as ledger:
        assert list(ledger.sums.n_releases.values()) == [1]
        ledger.verify()
    page = finished_report(sites.bank.path / "run.yaml").page
    (words,) = [
        block.text for section in page.sections for block in section.blocks if "label differential" in str(block)
    ]
    assert words.startswith("The labels have 1-label differential privacy against the passive parties")
    assert "Which records have a label shows, and that a label was changed between two runs" in words
    told = json.loads((ended["bank"].path / "labels.json").read_text())
    assert (told["mechanism"], told["epsilon"]) == ("randomised_response", 1.0)


def test_a_run_on_true_labels_has_no_promise_of_an_attempt_that_noised_them(sites: Any, outcomes: Outcomes) -> None:
    """The shop refused the attempt before it released anything, so that its folder is as good as new."""
    with_epsilon(sites, 0.5)
    sites.shop.run["ledger"] = {"budget": {"epsilon": 1e-6}}
    refused = train_both(sites, outcomes)
    assert all(isinstance(one, Exception) for one in refused.values())
    left = sites.bank.path / "runs" / sites.bank.run["run_id"] / "labels.json"
    assert left.exists()
    del sites.bank.run["label_epsilon"]
    del sites.shop.run["ledger"]
    ended = train_both(sites, outcomes)
    assert ended["bank"].path == left.parent
    assert not left.exists()
    page = finished_report(sites.bank.path / "run.yaml").page
    assert "label differential" not in str(page)
    # The broken twin: with what the attempt left, the report of true labels makes a promise.
    left.write_text(json.dumps(asdict(label_mechanism("y", Logistic(), 0.5, None).guarantee())))
    assert "0.5-label differential" in str(finished_report(sites.bank.path / "run.yaml").page)


def test_a_changed_label_is_drawn_anew_which_shows_whatever_the_epsilon(tmp_path: Path) -> None:
    noise = LabelNoise.of("y", Softmax(100), 0.001, None, ledger=tmp_path / "labels.sqlite")
    assert noise is not None
    ids, labels = pd.Index([f"k{i}" for i in range(200)], dtype=object), np.arange(200.0) % 100

    def drawn(labels: np.ndarray) -> np.ndarray:
        return noise.draw(labels, ids, run_id="one", peers=["shop"], to=tmp_path)

    first, changed = drawn(labels), np.arange(200) < 100
    assert (drawn(labels) == first).all()
    again = drawn(np.where(changed, 99 - labels, labels))
    assert (again == first)[~changed].all()
    # All but one in a hundred differ, whatever epsilon promises of each label.
    assert (again != first)[changed].mean() > 0.9


def test_labels_that_are_numbers_are_clipped_and_lose_no_more_than_epsilon_over_their_range() -> None:
    mechanism = label_mechanism("y", SquaredError(), 2.0, (10.0, 30.0))
    assert mechanism.guarantee().domain_loss == pytest.approx(2.0)
    labels = np.array([-5.0, 10.0, 17.0, 30.0, 99.0])
    back = decode_labels(mechanism, exact(mechanism, encode_labels(mechanism, labels)))
    assert back == pytest.approx([10, 10, 17, 30, 30])
    for loss, n_classes in ((Logistic(), 2), (Softmax(4), 4)):
        classes = np.arange(n_classes) * 1.0
        mechanism = label_mechanism("y", loss, 2.0, None)
        assert mechanism.guarantee().domain_loss == 2.0
        assert decode_labels(mechanism, exact(mechanism, encode_labels(mechanism, classes))).tolist() == list(classes)
    for loss, bounds in ((Poisson(), (0.0, 9.0)), (SquaredError(), None), (Logistic(), (0.0, 1.0))):
        with pytest.raises(ParameterError, match=r"Nothing was released"):
            label_mechanism("y", loss, 1.0, bounds)


def test_settings_that_do_not_go_with_label_epsilon_are_refused(sites: Any) -> None:
    model = sites.bank.run["model"]
    for changes, words in (
        ({"label_bounds": [0, 1]}, "label_bounds go with label_epsilon"),
        ({"label_epsilon": 1, "model": {**model, "engine": "xgboost"}}, "native engine"),
        ({"label_epsilon": 1, "model": {**model, "booster": "dart"}}, "without DART"),
        ({"label_epsilon": 1, "model": {**model, "monotone_constraints": {"age": 1}}}, "monotone"),
        ({"label_epsilon": 50}, "protects nothing"),
        ({"label_epsilon": 0}, "greater than 0"),
    ):
        before, sites.bank.run = sites.bank.run, sites.bank.run | changes
        with pytest.raises(ConfigError, match=words):
            read_run(sites.bank.write(), ActiveRun)
        sites.bank.run = before
