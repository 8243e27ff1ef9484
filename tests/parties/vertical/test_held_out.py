"""Held-out records: chosen by both sides, never released, answered after training, and scored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.desensitize import ColumnMechanism
from opboost.errors import ParameterError
from opboost.mechanism_settings import MechanismSettings
from opboost.metrics import auc, metric_by_name
from opboost.routing import Router, SplitTests
from opboost.schema import ColumnSchema, Kind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints
from opboost.uplift import measure_uplift
from parties.commands.console import Format, print_trained
from parties.config.reading import read_run
from parties.config.vertical import PassiveRun
from parties.errors import Disagreement, RunFolderError
from parties.jobs.answer_vertical import serve_passive
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.ledger.release_ledger import Ledger
from parties.reports.held_out_section import load_uplift
from parties.reports.run_facts import run_facts
from parties.session.session_log import Tally
from parties.tables.blocks import record_set
from parties.tables.keyed_table import called
from parties.tables.party_table import PartyTable
from parties.vertical import held_out
from parties.vertical.alignment import Aligner
from parties.vertical.held_out import KeyedChoice, n_held_out, places_of
from parties.vertical.held_out_score import score_held_out
from parties.vertical.party_a import train_jointly
from parties.vertical.party_b import train
from parties.vertical.prediction_client import predict_locally
from parties.vertical.prediction_server import AnswerableRecords, Answerer
from parties.vertical.training_job import HeldOutRecords
from protocols.errors import PeerAborted, ProtocolError, UnexpectedMessage
from protocols.messages.prediction import Answers, Ask, RecordStatus
from protocols.messages.vertical import Done
from protocols.transport.channel import Channel
from protocols.transport.keys import generate_shared
from protocols.transport.memory import memory_pair

Outcomes = Callable[..., dict[str, Any]]
SILENT = Terminal()
ALIGNED = {"psi": {"method": "psi"}, "hashed": {"method": "hashed", "secret": "keys/both.shared"}}
ALIGNED["prealigned"] = {"method": "prealigned"}


def with_held_out(sites: Any, share: float = 0.2, align: str = "psi") -> Any:
    if align == "hashed":
        generate_shared(sites.bank.path / "keys", "both")
        copy = sites.shop.path / "keys" / "both.shared"
        copy.write_text((sites.bank.path / "keys" / "both.shared").read_text())
        copy.chmod(0o600)
    for site in (sites.bank, sites.shop):
        site.run |= {"held_out": share, "align": ALIGNED[align]}
    return sites


def train_both(sites: Any, outcomes: Outcomes) -> dict[str, Any]:
    bank, shop = sites.bank.write(), sites.shop.write()
    return outcomes(
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
        }
    )


def log(site: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (site.run_folder / "log.jsonl").read_text().splitlines()]


def kept_file(site: Any) -> Path:
    (found,) = (site.path / "runs").glob("held_out.*.json")
    return Path(found)


def chosen_ids(sites: Any) -> list[str]:
    """The held-out ids, worked out from what the shop keeps."""
    key = bytes.fromhex(json.loads(kept_file(sites.shop).read_text())["seed"])
    common = pd.Index(sorted(sites.bank.table["id"]), dtype=object)
    return list(common[places_of(key, common) < 0.2])


@pytest.mark.parametrize("align", sorted(ALIGNED))
def test_held_out_records_are_answered_after_training_and_never_released(
    sites: Any, outcomes: Outcomes, align: str
) -> None:
    sites.bank.run["correct_noise"] = True
    found = train_both(with_held_out(sites, align=align), outcomes)
    n_held = len(held := chosen_ids(sites))
    for party in ("bank", "shop"):
        assert found[party].read_json("meta.json")["n_rows"] == 400 - n_held
    uplift = load_uplift(found["bank"])
    assert (uplift.metric, uplift.n_rows, uplift.n_held_out, uplift.reason) == ("auc", n_held, n_held, "")
    assert uplift.low <= uplift.uplift <= uplift.high
    assert uplift.uplift == pytest.approx(uplift.joint - uplift.alone)
    (told,) = [line for line in log(sites.shop) if line["event"] == "held out"]
    assert (told["answered"], told["records"]) == (n_held, n_held)
    assert not [one for one in sites.bank.table["id"] for site in (sites.bank, sites.shop) if one in str(log(site))]

    # The store has a release of every other record, and none of these.
    others = sorted(set(sites.bank.table["id"]) - set(held))[:n_held]
    for ids, absent in ((held, "n_reused"), (others, "n_drawn")):
        (sites.bank.path / "asked.txt").write_text("\n".join(ids))
        asked: dict[str, Any] = {"data": None, "ids": sites.bank.path / "asked.txt", "mode": "desensitized"}
        bank, shop, out = sites.bank.write(), sites.shop.write(), sites.bank.path / f"{absent}.csv"
        ends = outcomes(
            {
                "bank": lambda b=bank, a=asked, o=out: predict_active(b, out=o, insecure=False, terminal=SILENT, **a),
                "shop": lambda s=shop: serve_passive(s, data=None, insecure=False, terminal=SILENT),
            }
        )
        assert ends["shop"] == n_held
        released = [line for line in log(sites.shop) if line["event"] == "released"][-1]
        assert released[absent] == 0


def next_run(sites: Any, run_id: str, n_customers: int) -> None:
    """The weekly run: another name, some more customers."""
    for site, whole in zip((sites.bank, sites.shop), sites.whole, strict=True):
        site.run["run_id"] = run_id
        site.table = whole[whole["id"].isin(sites.order[:n_customers])]


def stores(sites: Any) -> set[int]:
    with Ledger(sites.shop.path / "runs" / "ledger.sqlite") as ledger:
        return {key for keys in ledger.trained("bank") for key in keys[:].tolist()}


def keys_of(ids: Any) -> set[int]:
    return set(record_set(pd.Index(sorted(ids), dtype=object))[:].tolist())


def test_over_three_runs_with_added_records_the_set_stays_and_new_records_join(sites: Any, outcomes: Outcomes) -> None:
    with_held_out(sites, align="prealigned")
    del sites.shop.run["allow_routed"]
    # The tests of four runs together would be more than one run's.
    sites.bank.run["answers"] = sites.shop.run["answers"] = "cells"
    sites.whole, sites.order = (sites.bank.table, sites.shop.table), list(sites.bank.table["id"])
    held: set[str] = set()
    for week, n_customers in (("first", 200), ("second", 300), ("third", 400)):
        next_run(sites, week, n_customers)
        found = train_both(sites, outcomes)
        before, held = held, set(chosen_ids(sites))
        assert {one for one in held if one in sites.order[: n_customers - 100]} >= before or week == "first"
        assert len(held - before) > 5
        uplift = load_uplift(found["bank"])
        # All of them are answered, those that an earlier run held out, too: none was released.
        assert (uplift.n_rows, uplift.n_held_out) == (len(held), len(held))
        assert stores(sites) == keys_of(set(sites.order[:n_customers]) - held)
        lines = [json.loads(line) for line in (found["shop"].path / "log.jsonl").read_text().splitlines()]
        assert not [line for line in lines if line["event"] == "held out before"]
    with Ledger(sites.shop.path / "runs" / "ledger.sqlite") as ledger:
        assert sorted(map(len, ledger.trained("bank", held_out=True)))[-1] == len(held)

    # The twin: both sides remove the files, as they did before with every run. Others are held out, and what was held
    # out is released; the shop's ledger knows both.
    for site in (sites.bank, sites.shop):
        kept_file(site).unlink()
    next_run(sites, "fourth", 400)
    found = train_both(sites, outcomes)
    now = set(chosen_ids(sites))
    assert load_uplift(found["bank"]).n_rows == len(now & held) < len(now)
    lines = [json.loads(line) for line in (found["shop"].path / "log.jsonl").read_text().splitlines()]
    (told,) = [line for line in lines if line["event"] == "held out before"]
    assert told["records"] == len(held - now)


def test_a_peer_that_breaks_off_and_comes_with_another_run_gets_no_other_set(
    sites: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_held_out(sites)

    def leaves(*_: object, **__: object) -> None:
        raise ParameterError("this set of records does not suit the bank")

    monkeypatch.setattr("parties.jobs.train_vertical.train_jointly", leaves)
    assert isinstance(train_both(sites, outcomes)["bank"], ParameterError)
    first = chosen_ids(sites)
    monkeypatch.undo()
    for site in (sites.bank, sites.shop):
        site.run["run_id"] = "again"
    kept_file(sites.bank).unlink()
    found = train_both(sites, outcomes)
    assert isinstance(found["shop"], Disagreement)
    assert not (sites.shop.path / "runs" / "again" / "released").exists()
    assert chosen_ids(sites) == first


def test_exact_answers_of_an_attempt_that_failed_are_in_the_log_and_in_the_report(
    sites: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bank has them, and asks for none again."""

    def leaves(*given: Any, **settings: Any) -> None:
        score_held_out(*given, **settings)
        raise ParameterError("the bank has its answers")

    monkeypatch.setattr("parties.vertical.party_a.score_held_out", leaves)
    found = train_both(with_held_out(sites), outcomes)
    assert isinstance(found["bank"], ParameterError)
    assert isinstance(found["shop"], PeerAborted)
    n_held = len(chosen_ids(sites))
    assert [line["answered"] for line in log(sites.shop) if line["event"] == "held out"] == [n_held]
    monkeypatch.undo()
    train_both(sites, outcomes)
    n_tests = len(json.loads((sites.shop.run_folder / "model.json").read_text())["tests"])
    told = run_facts(sites.shop.path / "run.yaml").history.held_out
    assert (told.n_records, told.n_answered, told.n_routed_bits) == (n_held, n_held, n_held * n_tests)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("answers", ["cells", "tests"])
def test_a_run_that_begins_again_has_all_answers_that_it_had_whatever_the_limit(
    sites: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch, keeps: bool, answers: str
) -> None:
    """They decide when training stops: a bank that asked again would be refused, and train another model."""

    def stops(*given: Any, **settings: Any) -> None:
        measure_uplift(*given, **settings)
        raise ParameterError("the bank has its answers")

    for site in (with_held_out(sites).bank, sites.shop):
        site.run["answers"] = answers
    sites.shop.run["serve"] = {"records_per_minute": 100}
    with monkeypatch.context() as patch:
        patch.setattr("parties.vertical.held_out_score.measure_uplift", stops)
        assert isinstance(train_both(sites, outcomes)["bank"], ParameterError)
    kept = sites.bank.run_folder / "journal" / "held_out"
    assert len(list(kept.iterdir())) == 1
    if not keeps:
        shutil.rmtree(kept)
    uplift = load_uplift(train_both(sites, outcomes)["bank"])
    told = [line["answered"] for line in log(sites.shop) if line["event"] == "held out"]
    n_held = len(chosen_ids(sites))
    assert 50 < n_held < 100
    assert told == ([n_held] if keeps else [n_held, 100 - n_held])
    assert ("refused_rate_limit" in uplift.reason) is not keeps
    assert uplift.n_rows + uplift.n_chose == told[-1]
    assert not list(sites.bank.run_folder.rglob("journal")) + list(sites.bank.run_folder.rglob("held_out"))


def test_exact_answers_that_cannot_be_noted_do_not_leave(trial: Any) -> None:
    here, there = memory_pair("shop", "bank")
    there.send(Ask(ids=tuple(trial.ids[:3]), desensitized=False))

    def note(request: Tally) -> None:
        raise RunFolderError(f"{request.n_answered} answers cannot be noted")

    spend = ColumnMechanism(
        ColumnSchema(name="spend", kind=Kind.NUMERIC, lower=0, upper=100), MechanismSettings(epsilon=0.5)
    )
    router = Router((spend,), SplitTests((), np.empty(0), np.empty(0, np.bool_)))
    with pytest.raises(RunFolderError, match="3 answers cannot be noted"):
        held_out.answer_held_out(answering(trial, np.arange(3))(router), here, note)
    assert not there.is_ready()


def test_a_passive_party_that_refuses_exact_answers_leaves_the_joint_score_unknown(
    sites: Any, outcomes: Outcomes
) -> None:
    with_held_out(sites).shop.run["allow_routed"] = False
    uplift = load_uplift(train_both(sites, outcomes)["bank"])
    assert (uplift.joint, uplift.uplift, uplift.low) == (None, None, None)
    assert 0 < uplift.alone < 1
    n_held = len(chosen_ids(sites))
    assert uplift.reason == f"a passive party did not answer for {n_held} (refused_routed) of {n_held} held-out records"


def test_held_out_answers_count_against_the_daily_limit(sites: Any, outcomes: Outcomes) -> None:
    with_held_out(sites).shop.run |= {"serve": {"routed_bits_per_day": 300}, "no_privacy": True}
    sites.shop.run["desensitize"]["epsilon"] = float("inf")
    uplift = load_uplift(train_both(sites, outcomes)["bank"])
    n_tests = len(json.loads((sites.shop.run_folder / "model.json").read_text())["tests"])
    assert uplift.n_rows == 300 // n_tests < len(chosen_ids(sites))
    assert "refused_daily_limit" in uplift.reason


def test_shares_that_differ_are_refused_before_the_records_are_aligned(sites: Any, outcomes: Outcomes) -> None:
    with_held_out(sites).shop.run["held_out"] = 0.3
    found = train_both(sites, outcomes)
    assert isinstance(found["bank"], Disagreement)
    assert isinstance(found["shop"], Disagreement)
    assert (
        "records held out of training: it plans a share of 0.3, this party plans 0.2; `held_out` must be the same in "
        "all run files. Nothing was released"
    ) in str(found["bank"])
    for site in (sites.bank, sites.shop):
        assert {line.get("kind") for line in log(site)} <= {None, "hello", "abort"}


def test_an_id_that_a_false_bank_calls_common_ends_the_run_before_the_key_is_drawn(
    sites: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-out ids were never proved: whether the run went on told the bank whether its guess of an id was right."""
    with_held_out(sites)
    follow = Aligner.follow

    def deceived(self: Aligner, table: Any, *given: Any, **named: Any) -> Any:
        found = follow(self, table, *given, **named)
        assert table.n_rows == found.table.n_rows + 1
        return replace(found, table=table, orders={"bank": np.arange(table.n_rows)})

    monkeypatch.setattr(Aligner, "follow", deceived)
    sites.shop.table.loc[len(sites.shop.table)] = ["zzz", 50.0, 25.0]
    found = train_both(sites, outcomes)
    assert all(isinstance(error, BaseException) for error in found.values()), found
    assert not [path for site in (sites.bank, sites.shop) for path in site.path.rglob("held_out.*")]


def test_a_party_that_is_asked_alone_need_not_bring_what_constraints_name(
    trial: Any, carriers: Any, tmp_path: Path
) -> None:
    """A saved run is concluded with one passive party after the other; the columns of the first one had been there."""
    name = trial.schemas("shop")[0].name
    active = trial.active(constraints=ColumnConstraints({name: 1}, ()), held_out_share=0.2)
    passive = trial.passive("post", held_out_share=0.2)

    def choice(party: str) -> KeyedChoice:
        return KeyedChoice(tmp_path / party, 0.2, partial(places_of, ids=trial.ids))

    found = carriers["memory"](
        lambda channels: held_out.choose_active(active, channels, choice("bank")),
        {"post": lambda channel: held_out.choose_passive(passive, channel, choice("post"))},
    )
    assert found["bank"].held_out.tolist() == found["post"].held_out.tolist()


def test_without_held_out_records_nothing_is_drawn_for_them(sites: Any, outcomes: Outcomes) -> None:
    found = train_both(with_held_out(sites, 0), outcomes)
    assert load_uplift(found["bank"]) is None
    for site in (sites.bank, sites.shop):
        assert not list((site.path / "runs").glob("held_out.*"))
        assert "held-out shares" not in {line.get("kind") for line in log(site)}


def named(n_rows: int) -> pd.Index:
    return pd.Index([f"r{i}" for i in range(n_rows)], dtype=object)


def chosen(path: Path, key: bytes, n_rows: int, share: float, most: int | None = None) -> Any:
    return KeyedChoice(path, share, lambda key: places_of(key, named(n_rows)), most).divided(key)


def test_about_the_share_is_held_out_20000_of_a_large_first_run_and_never_all(tmp_path: Path) -> None:
    for n_rows in (2, 50, 1000, 110_000):
        for share in (0.01, 0.2, 0.5):
            path, expected = tmp_path / f"{n_rows} {share}", min(share * n_rows, 20_000)
            found = chosen(path, bytes(32), n_rows, share)
            # 5 standard deviations of a binomial count.
            assert abs((0 if found is None else len(found.held_out)) - expected) <= 5 * np.sqrt(expected) + 1
    with pytest.raises(Disagreement, match="all of the 3 common records are held-out ones"):
        chosen(tmp_path / "all", bytes(32), 3, 1 - 1e-12)
    for n_rows in (1, 2, 3, 5, 50):
        assert 0 <= n_held_out(0.999, n_rows) < n_rows


def test_the_key_lies_beside_the_ledger_itself_whatever_link_leads_there(sites: Any, tmp_path: Path) -> None:
    """Beside each link, another key would have been drawn."""
    path = sites.shop.write()
    run = read_run(path, PassiveRun)
    run.ledger.path.parent.mkdir()
    (real := tmp_path / "shared").mkdir()
    run.ledger.path.symlink_to(real / "ledger.sqlite")
    assert KeyedChoice.of(run, pd.Index([])).path.parent == real


def test_every_record_is_held_out_as_often_as_any_other() -> None:
    n_keys, counts = 4000, np.zeros(10)
    for k in range(n_keys):
        counts += places_of(k.to_bytes(32, "big"), named(10)) < 0.3
    # 3 standard deviations of a binomial count, for the most extreme of ten: false alarms under 3 in 100.
    assert np.abs(counts - 0.3 * n_keys).max() < 3 * np.sqrt(n_keys * 0.3 * 0.7)


@given(st.sets(st.integers(0, 99), min_size=2), st.sets(st.integers(100, 199)), st.binary(min_size=32, max_size=32))
def test_added_records_move_no_other_into_or_out_of_what_is_held_out(old: set[int], new: set[int], key: bytes) -> None:
    """So it serves nobody to come again with other ids who knows the key, nor to leave some out."""
    before, after = (pd.Index(sorted(map(str, ids)), dtype=object) for ids in (old, old | new))
    held = set(before[places_of(key, before) < 0.3])
    assert {one for one in after[places_of(key, after) < 0.3] if int(one) in old} == held


def test_a_choice_by_place_in_the_list_moves_records() -> None:
    """The broken twin: a run's own random numbers for the first, second, ... record."""
    key = bytes(32)
    first, later = named(100), named(101).delete(0)
    held = set(first[places_of(key, named(100)) < 0.3])
    assert set(later[places_of(key, named(100)) < 0.3]) & set(first) != held - {"r0"}


def answering(trial: Any, rows: np.ndarray) -> Callable[..., Answerer]:
    table = trial.tables["shop"].iloc[rows].reset_index(drop=True)
    return lambda router: Answerer(router, AnswerableRecords.of(router, trial.ids[rows], table), may_route=True)


def jobs(trial: Any, **changes: Any) -> tuple[Any, Any]:
    """The bank's and the shop's jobs on the first 240 records of the trial, with the others held out."""
    held, kept = np.arange(240, 300), np.arange(240)
    active = trial.active(
        own=tuple(replace(one, values=one.values[kept]) for one in trial.active().own),
        labels=trial.labels[kept],
        weights=np.ones(240),
        held_out_share=0.2,
        held_out=HeldOutRecords(trial.ids[held], {"age": trial.age[held]}, trial.labels[held]),
    )
    passive = trial.passive(
        "shop", features=trial.tables["shop"].iloc[kept].reset_index(drop=True), held_out_share=0.2, **changes
    )
    return active, replace(passive, held_out=answering(trial, held))


@pytest.mark.parametrize("carrier", ["memory", "curve"])
def test_held_out_scores_are_those_of_the_exact_values(trial: Any, carriers: Any, carrier: str) -> None:
    active, passive = jobs(trial, share_thresholds=True)
    found = carriers[carrier](
        lambda channels: train_jointly(active, channels), {"shop": lambda channel: train(passive, channel)}
    )
    model = found["bank"]
    held = active.held_out
    table = trial.tables["shop"].iloc[240:].reset_index(drop=True)
    exact = predict_locally(model, held.own, table)
    assert model.uplift.joint == auc(held.labels, exact)
    assert found["shop"].held_out.n_answered == 60
    assert [fit.basis for fit in model.fits] == ["training rows", "held-out records"]


@pytest.mark.parametrize("may_route", [True, False])
def test_cells_of_held_out_records_stop_training_and_the_others_score_it(
    trial: Any, carriers: Any, may_route: bool
) -> None:
    """Every training record is trained on; half of the held-out ones choose, and are not scored."""
    logloss = (metric_by_name("logloss", trial.active().loss),)
    parameters = BoostingParameters(n_estimators=60, max_depth=3, early_stopping_rounds=3)
    active, passive = jobs(trial, share_thresholds=True, n_cells=5)
    active = replace(active, by_cells=True, metrics=logloss, parameters=parameters)
    if not may_route:
        answerer = passive.held_out

        def refusing(router: Any) -> Answerer:
            found = answerer(router)
            found._may_route = False
            return found

        passive = replace(passive, held_out=refusing)
    found = carriers["memory"](
        lambda channels: train_jointly(active, channels), {"shop": lambda channel: train(passive, channel)}
    )
    model, held = found["bank"], active.held_out
    assert found["shop"].held_out.n_requests == 1
    if not may_route:
        assert (model.ensemble.n_rounds, model.uplift.n_chose, model.uplift.joint) == (60, 0, None)
        assert "60 (refused_routed) of 60 held-out records" in model.uplift.reason
        return
    assert 0 < model.ensemble.n_rounds < 40
    assert (model.uplift.n_held_out, model.uplift.n_chose, model.uplift.n_rows) == (60, 30, 30)
    exact = predict_locally(model, held.own, trial.tables["shop"].iloc[240:].reset_index(drop=True))
    assert model.uplift.joint == auc(held.labels[1::2], exact[1::2])
    best = model.history.scores["logloss"][model.history.best_round - 1]
    assert best == pytest.approx(logloss[0].of(held.labels[::2], exact[::2]))
    assert model.fits[-1].n_rows == 30


def test_only_held_out_records_are_answered_within_a_training_run(trial: Any, carriers: Any) -> None:
    seen: dict[str, Answers] = {}

    class Curious:
        """The bank's channel: in place of the held-out records, it asks about records of the release."""

        def __init__(self, channel: Channel, ask: Ask) -> None:
            self._channel, self._ask = channel, ask

        def __getattr__(self, name: str) -> Any:
            return getattr(self._channel, name)

        def send(self, message: Any) -> None:
            self._channel.send(self._ask if isinstance(message, Ask) else message)

        def receive(self) -> Any:
            if isinstance(message := self._channel.receive(), Answers):
                seen["answers"] = message
            return message

    def run(ask: Ask, **changes: Any) -> dict[str, Any]:
        active, passive = jobs(trial)
        passive = replace(passive, **changes)
        return carriers["memory"](
            lambda channels: train_jointly(active, [Curious(channels[0], ask)]),
            {"shop": lambda channel: train(passive, channel)},
        )

    run(Ask(ids=tuple(trial.ids[:60]), desensitized=False))
    assert len(seen["answers"].status) == 60
    assert (seen["answers"].status == RecordStatus.UNKNOWN).all()
    assert not seen["answers"].bits.any()
    found = run(Ask(ids=tuple(trial.ids[240:250]), desensitized=True))
    assert isinstance(found["shop"], UnexpectedMessage)
    assert "desensitized records were asked for where exact answers were due" in str(found["shop"])
    found = run(Ask(ids=tuple(trial.ids[240:250]), desensitized=False), held_out=None)
    assert isinstance(found["shop"], UnexpectedMessage)
    assert isinstance(found["bank"], PeerAborted | ProtocolError)


def test_no_held_out_record_is_answered_twice() -> None:
    bank, shop = memory_pair("bank", "shop")
    answerer: Any = SimpleNamespace(n_records=3, n_bits=1)
    bank.send(Ask(ids=("k1", "k1"), desensitized=False))
    with pytest.raises(UnexpectedMessage, match=r"asked for 2 records in 1 requests; each of 3 may be asked for once"):
        held_out.answer_held_out(answerer, shop, lambda tally: None)


@pytest.mark.parametrize("more", [0, 1, 60])
def test_held_out_records_are_asked_for_once(trial: Any, carriers: Any, more: int) -> None:
    """Else a training run would last, and its log grow, for as long as the bank asks."""

    class Endless:
        """The bank's channel: in place of saying that it is done, the bank asks for more."""

        def __init__(self, channel: Channel) -> None:
            self._channel = channel

        def __getattr__(self, name: str) -> Any:
            return getattr(self._channel, name)

        def send(self, message: Any) -> None:
            again = Ask(ids=tuple(trial.ids[240 : 240 + more]), desensitized=False)
            self._channel.send(again if isinstance(message, Done) else message)

    active, passive = jobs(trial)
    found = carriers["memory"](
        lambda channels: train_jointly(active, [Endless(channels[0])]),
        {"shop": lambda channel: train(passive, channel)},
    )
    assert isinstance(found["shop"], UnexpectedMessage)
    assert f"{60 + more} records in 2 requests; each of 60 may be asked for once" in str(found["shop"])
    assert isinstance(found["bank"], PeerAborted)


def test_the_report_and_the_command_begin_with_the_held_out_scores(
    sites: Any, outcomes: Outcomes, capsys: pytest.CaptureFixture[str]
) -> None:
    for site in (with_held_out(sites).bank, sites.shop):
        site.run["report"] = True
    folder = train_both(sites, outcomes)["bank"]
    page = (folder.path / "report.html").read_text()
    headings = [text.split("</h2>")[0] for text in page.split("<h2>")[1:]]
    assert headings[0] == "Result"
    assert "Quality: training rows" in headings
    assert "which were neither released nor trained on in this run" in page
    assert "shop offered 2 columns and resolved" in page
    assert "with equal chance, it could guess at most" in page
    assert "by this run alone" in page
    assert "Bits about the same labels add up: those of other runs" in page
    assert json.loads((folder.path / "report.json").read_text())["uplift"]["n_held_out"] == len(chosen_ids(sites))
    print_trained(Format.TEXT, folder, "opboost predict run.yaml")
    told = capsys.readouterr().out
    assert "bank alone" in told
    assert "uplift, 95 % bootstrap interval" in told


@pytest.mark.parametrize("most", [None, 1, 100, 5000])
def test_who_is_released_does_not_depend_on_how_many_are_and_who_is_held_out_never_is(
    tmp_path: Path, most: int | None
) -> None:
    found, whole = (chosen(tmp_path / "kept", bytes(32), 1000, 0.2, one) for one in (most, None))
    assert found.held_out.tolist() == whole.held_out.tolist()
    assert set(found.trained) <= set(whole.trained)
    assert len(found.trained) == min(most or 1000, len(whole.trained))
    assert sorted([*whole.held_out, *whole.trained]) == list(range(1000))


def test_parties_that_release_different_numbers_of_records_do_not_agree(sites: Any, outcomes: Outcomes) -> None:
    for site, most in ((sites.bank, 100), (sites.shop, 150)):
        site.run |= {"held_out": 0.2, "most_records": most}
    found = train_both(sites, outcomes)
    assert all("records released at most" in str(error) for error in found.values())


def test_held_out_records_are_asked_for_by_the_key_that_was_compared_alone() -> None:
    keys = (np.array(["a", "", "c"], object), np.array(["x", "y", "z"], object))
    table = PartyTable(pd.Index(["p", "q", "r"]), pd.DataFrame(index=range(3)), keys=keys)
    compared = called(table, pd.Index(["1 a", "2 y", "2 z"]))
    router = Router((), SplitTests((), np.empty(0), np.empty(0, np.bool_)))
    # By another key, each request would try out one more guess at what was left out of the comparison.
    assert held_out.answerable(compared, router).places == {"1 a": 0, "2 y": 1, "2 z": 2}
