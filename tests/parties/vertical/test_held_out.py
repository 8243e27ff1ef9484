"""Held-out records: chosen by both sides, never released, answered after training, and scored."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.guarantee import compose
from opboost.schema import ColumnSchema, Kind
from parties.commands.console import Format, print_trained
from parties.errors import Disagreement
from parties.jobs.answer_vertical import serve_passive
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.reports.held_out_section import load_uplift
from parties.vertical import held_out
from parties.vertical.held_out import SHARES_FILE, divide_rows, n_held_out
from parties.vertical.held_out_score import columns_of_ranks
from parties.vertical.party_a import train_jointly
from parties.vertical.party_b import train
from parties.vertical.prediction_server import AnswerableRecords, Answerer
from parties.vertical.training_job import HeldOutRecords
from protocols.errors import PeerAborted, ProtocolError, UnexpectedMessage
from protocols.messages.prediction import Answers, Ask, RecordStatus
from protocols.messages.vertical import Done, HeldOutShares
from protocols.transport.channel import Channel, expect
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
        40,
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
        },
    )


def log(site: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (site.run_folder / "log.jsonl").read_text().splitlines()]


def chosen_ids(sites: Any) -> list[str]:
    """The held-out ids, worked out from what the shop keeps."""
    seed = bytes.fromhex(json.loads((sites.shop.run_folder / SHARES_FILE).read_text())["seed"])
    common = np.array(sorted(sites.bank.table["id"]))
    return list(common[divide_rows(seed, len(common), 0.2).held_out])


@pytest.mark.parametrize("align", sorted(ALIGNED))
def test_held_out_records_are_answered_after_training_and_never_released(
    sites: Any, outcomes: Outcomes, align: str
) -> None:
    found = train_both(with_held_out(sites, align=align), outcomes)
    for party in ("bank", "shop"):
        assert found[party].read_json("meta.json")["n_rows"] == 320
    uplift = load_uplift(found["bank"])
    assert (uplift.metric, uplift.n_rows, uplift.n_held_out, uplift.reason) == ("auc", 80, 80, "")
    assert uplift.low <= uplift.uplift <= uplift.high
    assert uplift.uplift == pytest.approx(uplift.joint - uplift.alone)
    (told,) = [line for line in log(sites.shop) if line["event"] == "held out"]
    assert (told["answered"], told["records"]) == (80, 80)
    assert not [one for one in sites.bank.table["id"] for site in (sites.bank, sites.shop) if one in str(log(site))]

    # The store has a release of every other record, and none of these.
    held = chosen_ids(sites)
    others = sorted(set(sites.bank.table["id"]) - set(held))[:80]
    for ids, absent in ((held, "n_reused"), (others, "n_drawn")):
        (sites.bank.path / "asked.txt").write_text("\n".join(ids))
        asked: dict[str, Any] = {"data": None, "ids": sites.bank.path / "asked.txt", "mode": "desensitized"}
        bank, shop, out = sites.bank.write(), sites.shop.write(), sites.bank.path / f"{absent}.csv"
        ends = outcomes(
            40,
            {
                "bank": lambda b=bank, a=asked, o=out: predict_active(b, out=o, insecure=False, terminal=SILENT, **a),
                "shop": lambda s=shop: serve_passive(s, data=None, insecure=False, terminal=SILENT),
            },
        )
        assert ends["shop"] == 80
        released = [line for line in log(sites.shop) if line["event"] == "released"][-1]
        assert released[absent] == 0


def test_a_passive_party_that_refuses_exact_answers_leaves_the_joint_score_unknown(
    sites: Any, outcomes: Outcomes
) -> None:
    with_held_out(sites).shop.run["allow_routed"] = False
    uplift = load_uplift(train_both(sites, outcomes)["bank"])
    assert (uplift.joint, uplift.uplift, uplift.low) == (None, None, None)
    assert 0 < uplift.alone < 1
    assert uplift.reason == "a passive party did not answer for 80 (refused_routed) of 80 held-out records"


def test_held_out_answers_count_against_the_daily_limit(sites: Any, outcomes: Outcomes) -> None:
    with_held_out(sites).shop.run |= {"serve": {"routed_bits_per_day": 300}, "no_privacy": True}
    sites.shop.run["desensitize"]["epsilon"] = float("inf")
    uplift = load_uplift(train_both(sites, outcomes)["bank"])
    n_tests = len(json.loads((sites.shop.run_folder / "model.json").read_text())["tests"])
    assert uplift.n_rows == 300 // n_tests < 80
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


def test_without_held_out_records_nothing_is_drawn_for_them(sites: Any, outcomes: Outcomes) -> None:
    found = train_both(with_held_out(sites, 0), outcomes)
    assert load_uplift(found["bank"]) is None
    for site in (sites.bank, sites.shop):
        assert not (site.run_folder / SHARES_FILE).exists()
        assert "held-out shares" not in {line.get("kind") for line in log(site)}


@pytest.mark.parametrize("n_rows", [1, 2, 3, 5, 50, 1000, 200_000])
def test_a_record_is_always_left_to_train_on_and_the_number_is_bounded(n_rows: int) -> None:
    for share in (0.0, 0.01, 0.2, 0.5, 0.999):
        count = n_held_out(share, n_rows)
        assert 0 <= count < n_rows
        assert count == min(round(share * n_rows), 20_000, n_rows - 1)
        rows = divide_rows(bytes(32), n_rows, share).held_out
        assert len(np.unique(rows)) == count
        assert not count or (rows[0] >= 0 and rows[-1] < n_rows)


def test_every_record_is_held_out_as_often_as_any_other() -> None:
    n_seeds, counts = 4000, np.zeros(10)
    for k in range(n_seeds):
        counts[divide_rows(k.to_bytes(32, "big"), 10, 0.3).held_out] += 1
    # 3 standard deviations of a binomial count, for the most extreme of ten: false alarms under 3 in 100.
    assert np.abs(counts - 0.3 * n_seeds).max() < 3 * np.sqrt(n_seeds * 0.3 * 0.7)


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
        10,
        {"bank": lambda: closing(active, near, tmp_path / "a"), "shop": lambda: closing(passive, far, tmp_path / "b")},
    )


def honest(channel: Channel, folder: Path) -> bytes:
    return held_out.draw_active([channel], folder, records=bytes(32))


def draw_passive(channel: Channel, folder: Path) -> bytes:
    return held_out.draw_passive(channel, folder, records=bytes(32))


def test_both_sides_draw_the_same_seed_and_the_same_again(outcomes: Outcomes, tmp_path: Path) -> None:
    first, again = (drawn(outcomes, tmp_path, honest, draw_passive) for _ in range(2))
    assert first["bank"] == first["shop"] == again["bank"] == again["shop"]
    (tmp_path / "c").mkdir()
    assert drawn(outcomes, tmp_path / "c", honest, draw_passive)["bank"] != first["bank"]


def test_an_active_party_that_changes_its_bytes_in_a_later_attempt_is_refused(
    outcomes: Outcomes, tmp_path: Path
) -> None:
    drawn(outcomes, tmp_path, honest, draw_passive)
    (tmp_path / "a" / SHARES_FILE).unlink()
    found = drawn(outcomes, tmp_path, honest, draw_passive)
    assert isinstance(found["shop"], Disagreement)
    assert "choose another run_id on all sides. Nothing was released" in str(found["shop"])


def test_a_passive_party_cannot_choose_its_bytes_after_it_has_seen_the_others(
    outcomes: Outcomes, tmp_path: Path
) -> None:
    def late(channel: Channel, folder: Path) -> None:
        channel.send(HeldOutShares(shares=(held_out._hash(bytes(32)),)))
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
        channel.send(HeldOutShares(shares=(mine, held_out._hash(mine) if lie == "leaves the hash out" else seen)))
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
        channel.send(HeldOutShares(shares=(held_out._hash(bytes(32)),)))
        expect(channel, HeldOutShares)

    found = drawn(outcomes, tmp_path / "active", leaving, draw_passive)
    assert isinstance(found["shop"], ProtocolError)
    # The shop's bytes are known by now, and the bank brings others.
    assert isinstance(drawn(outcomes, tmp_path / "active", honest, draw_passive)["shop"], Disagreement)
    found = drawn(outcomes, tmp_path / "passive", honest, peeping)
    assert isinstance(found["bank"], ProtocolError)
    assert isinstance(drawn(outcomes, tmp_path / "passive", honest, draw_passive)["bank"], Disagreement)


@pytest.mark.parametrize("liar", ["bank", "shop"])
def test_who_knows_the_bytes_cannot_come_again_with_other_ids(
    sites: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch, liar: str
) -> None:
    """Among other common records the same bytes hold others out, which it could choose before it comes."""
    name = {"bank": "draw_active", "shop": "draw_passive"}[liar]
    drawing = getattr(held_out, name)

    def leaving(*parts: Any, **settings: Any) -> None:
        drawing(*parts, **settings)
        raise Disagreement("it knows which ones")

    monkeypatch.setattr(held_out, name, leaving)
    train_both(with_held_out(sites), outcomes)
    monkeypatch.setattr(held_out, name, drawing)
    site, other = (sites.bank, sites.shop) if liar == "bank" else (sites.shop, sites.bank)
    shares = json.loads((site.run_folder / SHARES_FILE).read_text())
    (site.run_folder / SHARES_FILE).write_text(json.dumps({"own": shares["own"]}))
    site.table = site.table[:-5]
    found = train_both(sites, outcomes)[other.party]
    assert isinstance(found, Disagreement), found
    assert "or other records are common" in str(found)
    assert "released" not in {line["event"] for line in log(sites.shop)}


def test_without_the_hashes_whoever_speaks_last_chooses_a_record(outcomes: Outcomes, tmp_path: Path) -> None:
    """The broken twin: bytes that are shown before the other side has committed itself."""

    def wants(seed: bytes) -> bool:
        return 7 in divide_rows(seed, 100, 0.05).held_out

    def grinding(channel: Channel, folder: Path) -> bytes:
        (seen,) = expect(channel, HeldOutShares).shares
        tries = (k.to_bytes(32, "big") for k in range(1000))
        mine = next(share for share in tries if wants(held_out._seed(share, [seen])))
        channel.send(HeldOutShares(shares=(mine,)))
        return held_out._seed(mine, [seen])

    def credulous(channel: Channel, folder: Path) -> bytes:
        own = b"the shop's bytes".ljust(32)
        channel.send(HeldOutShares(shares=(own,)))
        return held_out._seed(expect(channel, HeldOutShares).shares[0], [own])

    found = drawn(outcomes, tmp_path, grinding, credulous)
    assert found["bank"] == found["shop"]
    assert wants(found["shop"])


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
    from opboost.metrics import auc
    from parties.vertical.prediction_client import predict_locally

    table = trial.tables["shop"].iloc[240:].reset_index(drop=True)
    exact = predict_locally(model, held.own, table)
    assert model.uplift.joint == auc(held.labels, exact)
    assert found["shop"].held_out.n_answered == 60
    assert [fit.basis for fit in model.fits] == ["training rows", "held-out records"]


def test_only_held_out_records_are_answered_within_a_training_run(trial: Any, carriers: Any) -> None:
    seen: dict[str, Answers] = {}

    class Curious:
        """The bank's channel: before the bank says that it is done, it asks about records of the release."""

        def __init__(self, channel: Channel, ask: Ask) -> None:
            self._channel, self._ask = channel, ask

        def __getattr__(self, name: str) -> Any:
            return getattr(self._channel, name)

        def send(self, message: Any) -> None:
            if isinstance(message, Done):
                self._channel.send(self._ask)
                seen["answers"] = expect(self._channel, Answers)
            self._channel.send(message)

    def run(ask: Ask, **changes: Any) -> dict[str, Any]:
        active, passive = jobs(trial)
        passive = replace(passive, **changes)
        return carriers["memory"](
            lambda channels: train_jointly(active, [Curious(channels[0], ask)]),
            {"shop": lambda channel: train(passive, channel)},
        )

    run(Ask(ids=tuple(trial.ids[:50]), desensitized=False))
    assert (seen["answers"].status == RecordStatus.UNKNOWN).all()
    assert not seen["answers"].bits.any()
    found = run(Ask(ids=tuple(trial.ids[240:250]), desensitized=True))
    assert isinstance(found["shop"], UnexpectedMessage)
    assert "desensitized records were asked for where exact answers were due" in str(found["shop"])
    found = run(Ask(ids=tuple(trial.ids[240:250]), desensitized=False), held_out=None)
    assert isinstance(found["shop"], UnexpectedMessage)
    assert isinstance(found["bank"], PeerAborted | ProtocolError)


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
    assert "which were neither released nor trained on" in page
    assert "shop offered 2 columns and resolved" in page
    assert "with equal chance, it could guess at most" in page
    assert json.loads((folder.path / "report.json").read_text())["uplift"]["n_held_out"] == 80
    print_trained(Format.TEXT, folder, "opboost predict run.yaml")
    told = capsys.readouterr().out
    assert "bank alone" in told
    assert "uplift, 95 % bootstrap interval" in told


@pytest.mark.parametrize("most", [None, 1, 100, 5000])
def test_who_is_released_does_not_depend_on_how_many_are_and_who_is_held_out_never_is(most: int | None) -> None:
    found, whole = divide_rows(bytes(32), 1000, 0.2, most), divide_rows(bytes(32), 1000, 0.2)
    assert found.held_out.tolist() == whole.held_out.tolist()
    assert set(found.trained) <= set(whole.trained)
    assert len(found.trained) == min(most or 800, 800)
    assert sorted([*whole.held_out, *whole.trained]) == list(range(1000))


def test_columns_of_ranks_go_with_the_column_that_they_come_from() -> None:
    numbers, town = ColumnSchema(name="a", lower=0, upper=9), {"kind": Kind.UNORDERED, "categories": ("x", "y")}
    schemas = (numbers, ColumnSchema(name="b", **town))  # type: ignore[arg-type]
    promise = compose(tuple(ColumnMechanism(one, MechanismSettings()).guarantee() for one in schemas), is_secure=True)
    assert columns_of_ranks(promise, ["c0", "c1", "c2"]) == {"a": ["c0"], "b": ["c1", "c2"]}
    # A guarantee that does not fit what was offered says nothing about it.
    for wrong in (promise, None):
        assert columns_of_ranks(wrong, ["c0", "c1"]) == {"c0": ("c0",), "c1": ("c1",)}


def test_parties_that_release_different_numbers_of_records_do_not_agree(sites: Any, outcomes: Outcomes) -> None:
    for site, most in ((sites.bank, 100), (sites.shop, 150)):
        site.run |= {"held_out": 0.2, "most_records": most}
    found = train_both(sites, outcomes)
    assert all("records released at most" in str(error) for error in found.values())
