"""Reports of horizontal runs: plans against the accounts and the wire, runs against the logs, and a planted value."""

from __future__ import annotations

import base64
import json
import shutil
import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from opboost.horizontal.noise.distributed_noise import epsilon_of_shares
from opboost.trees.model_file import load_model
from parties.cli import app
from parties.config.horizontal import CoordinatorRun
from parties.config.reading import read_run, read_schema
from parties.config.recipes import make_recipe
from parties.doctor.check_result import Status, is_sound
from parties.doctor.vertical import examine
from parties.errors import ConfigError, RunFolderError
from parties.horizontal.traffic_estimate import estimate_traffic
from parties.reports import horizontal_facts
from parties.reports.horizontal_facts import record_facts
from parties.reports.horizontal_plan_facts import record_plan
from parties.reports.plain import plain
from parties.reports.plan.choices import MechanismGrid
from parties.reports.writing import report_of
from parties.runs.run_folder import RunFolder

CLINICS = ("north", "south", "west")


def document(hospitals: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((hospitals.folder(name) / "report.json").read_text())
    return found


def log_of(hospitals: Any, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (hospitals.folder(name) / "log.jsonl").read_text().splitlines()]


def recipe_of(hospitals: Any) -> Any:
    run = read_run(hospitals.write("hub"), CoordinatorRun)
    return make_recipe(run.training, read_schema(run.table_schema)[0])


def owner_file(hospitals: Any) -> Path:
    """North's run file for a chain of the same clinics."""
    run = {
        name: hospitals.runs["north"][name] for name in ("party", "run_id", "schema", "secret_key", "data", "ledger")
    }
    others = [
        {"name": name, "public_key": f"keys/{name}.public", "connect": "tcp://127.0.0.1:1"} for name in CLINICS[1:]
    ]
    path: Path = hospitals.write("north")
    training = {"epsilon": 1.0, "order": list(CLINICS), "inprivate": {"n_rounds": 2}}
    path.write_text(yaml.safe_dump({**run, "role": "owner", "owners": others, "training": training}))
    return path


def test_a_plan_tells_the_promise_the_noise_and_what_drop_outs_cost_and_begins_nothing(hospitals: Any) -> None:
    path = hospitals.write("north")
    before = sorted(hospitals.root.rglob("*"))
    plan = record_plan(path)
    assert sorted(hospitals.root.rglob("*")) == before
    noise = recipe_of(hospitals).noise
    assert plan.account.guarantee.epsilon == noise.epsilon(1e-6) <= 3.0
    assert plan.account.guarantee.certified
    assert plan.n_records == 90
    assert [(one.kind, one.count) for one in plan.account.queries] == [("Skellam", 8)]
    assert plan.account.converted == tuple(
        (order, pytest.approx(epsilon)) for order, epsilon in _converted(plan.account.renyi, 1e-6)
    )
    # The account is the exact one of Gaussian noise, a little below Renyi's.
    assert dict(plan.account.profiles["exact Gaussian"])[1e-6] == plan.account.guarantee.epsilon
    assert 1.0 < min(epsilon for _, epsilon in plan.account.converted) / plan.account.guarantee.epsilon < 1.2
    assert [one.n_workers for one in plan.shares] == [1, 2, 3]
    assert plan.shares[1].epsilon == pytest.approx(plan.account.guarantee.epsilon)
    assert [one.epsilon for one in plan.account.guarantee.weaker] == [plan.shares[0].epsilon]
    assert plan.shares[0].epsilon > plan.shares[1].epsilon > plan.shares[2].epsilon
    agreed = [one for one in plan.noises if one.epsilon == 3.0]
    assert [one.multiplier for one in agreed] == [noise.multiplier]
    assert np.all(np.diff([one.multiplier for one in plan.noises]) < 0)
    assert "that leaves 1 against each of them" in plan.observers[1].promise
    assert plan.ledger is not None
    assert plan.ledger.remaining == (pytest.approx(5.0 - plan.account.guarantee.epsilon), None)


def _converted(curve: Sequence[tuple[int, float]], delta: float) -> list[tuple[int, float]]:
    """Canonne, Kamath and Steinke, proposition 12, by hand."""
    return [(a, rho + np.log(1 - 1 / a) - (np.log(delta) + np.log(a)) / (a - 1)) for a, rho in curve]


def test_gaussian_answers_have_a_loss_distribution_too(hospitals: Any) -> None:
    hospitals.training |= {"noise": "aggregator", "honest": None, "sgbdt": {"n_estimators": 4}}
    plan = record_plan(hospitals.write("hub"))
    assert {"exact Gaussian", "loss distribution (PLD)", "Renyi"} <= set(plan.account.profiles)
    assert plan.shares == ()
    assert plan.ledger is None
    hub, *others = plan.observers
    assert hub.promise.startswith("no differential privacy")
    assert hub.gradients.startswith("exact sums over at least 2 workers")
    assert all(one.promise.startswith("epsilon 3") for one in others[:2])


def test_what_a_coordinator_that_makes_up_workers_learns_is_told_wherever_workers_do_not_know_each_other(
    hospitals: Any,
) -> None:
    assert not [one for one in examine(hospitals.write("north"), wait_s=0.1) if one.check == "workers"]
    hospitals.training["known_workers"] = False
    for name in CLINICS:
        del hospitals.runs[name]["peers"]
    for name in ("hub", "north"):
        path = hospitals.write(name)
        worker, hub = record_plan(path).account.guarantee.weaker
        assert worker.epsilon == hub.epsilon == epsilon_of_shares(recipe_of(hospitals).noise, 1, delta=1e-6) > 4.3
        text = report_of(path).text("md")
        assert f"if it does, epsilon is {hub.epsilon:.4g}" in text
        assert "| epsilon against a coordinator that makes up the other workers" in text
        assert "Against a coordinator that makes up the other workers" in text
        (found,) = [one for one in examine(path, wait_s=0.1) if one.check == "workers"]
        assert found.status is Status.WARNING
        assert f"epsilon against it is {hub.epsilon:.4g}, and not 3" in found.sentence
    hospitals.training |= {"noise": "aggregator", "honest": None}
    (found,) = [one for one in examine(hospitals.write("north"), wait_s=0.1) if one.check == "workers"]
    assert found.sentence.endswith("sees the sums of one worker alone")


def test_a_plan_in_paper_mode_is_not_certified_and_tells_what_is_claimed(hospitals: Any) -> None:
    hospitals.training |= {"mode": "paper", "honest": None, "sgbdt": {"n_estimators": 60, "subsample": 0.05}}
    text = report_of(hospitals.write("north"), grid=MechanismGrid(epsilons=(3.0,))).text("md")
    assert "| certified or paper | not certified (paper mode) |" in text
    assert "| epsilon that the publication claims | 3 |" in text
    assert "Not certified: paper mode." in text
    assert "loss distribution (PLD)" in text


def test_the_rehearsal_counts_the_rounds_and_bytes_of_the_run(treated: Any) -> None:
    traffic = estimate_traffic(recipe_of(treated), 3)
    assert traffic.n_rounds == json.loads((treated.folder("hub") / "meta.json").read_text())["n_rounds"] == 8
    for name in CLINICS:
        sent = Counter(line["kind"] for line in log_of(treated, name) if line["event"] == "sent")
        assert sent["masked"] == sent["confirmed"] == sent["shares"] == traffic.n_rounds
        size = sum(
            line["bytes"]
            for line in log_of(treated, name)
            if line["event"] == "sent" and line["kind"] in ("masked", "confirmed", "shares")
        )
        assert traffic.sent_bytes == size
        words = ("start tree", "divide", "want totals", "add up", "survivors", "unmask", "finish tree")
        told = [line for line in log_of(treated, name) if line["event"] == "received" and line["kind"] in words]
        assert traffic.received_bytes == pytest.approx(sum(line["bytes"] for line in told), rel=0.02)


def test_what_the_framework_counts_is_in_the_plan(hospitals: Any) -> None:
    hospitals.training |= {"recipe": "federated", "federated": {"n_estimators": 6, "max_depth": 2, "batch_size": 3}}
    hospitals.training.pop("sgbdt")
    traffic = record_plan(hospitals.write("hub")).traffic
    assert traffic is not None
    assert (traffic.n_queries, traffic.paper_rounds, traffic.n_rounds) == (6, 2, 2)
    assert traffic.paper_bytes == 8 * traffic.n_numbers == 8 * 6 * 2 * 4


def test_a_plan_over_the_budget_says_that_the_run_would_be_refused(hospitals: Any) -> None:
    hospitals.runs["north"]["ledger"] = {"epsilon": 1.0}
    assert "The run would be refused" in report_of(hospitals.write("north")).text("md")


def test_other_budgets_can_be_asked_for_and_nothing_else(hospitals: Any) -> None:
    path = str(hospitals.write("hub"))
    done = CliRunner().invoke(app, ["report", path, "--epsilon", "1", "--epsilon", "0.5", "--format", "json"])
    assert [one["epsilon"] for one in json.loads(done.stdout)["noises"]] == [0.5, 1.0, 3.0]
    done = CliRunner().invoke(app, ["report", path, "--mechanism", "adj"])
    assert done.exit_code == 1
    assert "desensitizes no columns" in done.stderr


def test_an_owner_in_a_chain_has_a_plan_and_a_doctor_too(hospitals: Any) -> None:
    path = owner_file(hospitals)
    plan = record_plan(path)
    assert (plan.role, plan.n_trees, plan.traffic, plan.noises) == ("owner", 6, None, ())
    assert plan.account.guarantee.delta == 0
    assert plan.account.converted == ()
    assert [one.who for one in plan.observers] == ["the other owners", "whoever reads the model", "the network"]
    assert "RDP, by order" in report_of(path).text("md")
    found = examine(path, wait_s=0.2)
    assert is_sound(found)
    assert sum(one.check == "peer" for one in found) == 2


def test_every_run_folder_holds_a_report_that_can_be_had_again(treated: Any) -> None:
    for name in ("hub", *CLINICS):
        found = document(treated, name)
        assert found["kind"] == "records"
        assert found["role"] == ("coordinator" if name == "hub" else "worker")
        assert found["account"]["guarantee"]["epsilon"] <= 3.0
        promise = json.loads((treated.folder(name) / "guarantee.json").read_text())
        assert found["account"]["guarantee"]["epsilon"] == promise["epsilon"]
        code = CliRunner().invoke(app, ["report", str(treated.root / name / "run.yaml"), "--format", "json"])
        assert json.loads(code.stdout) == found
        assert str(treated.root) not in json.dumps(found) + (treated.folder(name) / "report.html").read_text()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"epsilon": 0.1}, r"training.epsilon was 3.0, is 0.1. Bring them back for its report. Nothing was written"),
        ({"honest": 1}, r"training.honest was 2, is 1"),
    ],
)
def test_no_report_promises_what_settings_say_that_the_run_had_not(
    treated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], words: str
) -> None:
    root = shutil.copytree(treated.root, tmp_path / "copy")
    for name in ("hub", "north"):
        path = root / name / "run.yaml"
        run = yaml.safe_load(path.read_text())
        assert record_facts(path).account.guarantee.epsilon > 2.9
        path.write_text(yaml.safe_dump({**run, "training": {**run["training"], **changed}}))
        with pytest.raises(RunFolderError, match=words):
            report_of(path)
        with monkeypatch.context() as blind:
            # The broken twin.
            blind.setattr(horizontal_facts, "changes", lambda before, after: [])
            said = record_facts(path).account.guarantee
            assert said.epsilon < 0.11 or "as long as 1 of the workers" in said.protected
        # What has nothing to do with the promise may change, as it may for predictions.
        path.write_text(yaml.safe_dump({**run, "wait": 77}))
        assert record_facts(path).account.guarantee.epsilon > 2.9


def test_keys_that_came_after_a_run_do_not_make_its_workers_known(
    treated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator could have made up workers then, which a report by the keys of today would not say."""
    root = shutil.copytree(treated.root, tmp_path / "copy")
    path = root / "north" / "run.yaml"
    kept = path.parent / "runs" / "spring" / "config.yaml"
    run = yaml.safe_load(kept.read_text())
    del run["secret_key"], run["peers"]
    kept.write_text(yaml.safe_dump({**run, "coordinator": {"name": "hub"}}))
    with pytest.raises(RunFolderError, match=r"secret_key was absent, is keys/north.secret"):
        report_of(path)
    with monkeypatch.context() as blind:
        # The broken twin promises against the coordinator what the run did not.
        blind.setattr(horizontal_facts, "changes", lambda before, after: [])
        assert len(record_facts(path).account.guarantee.weaker) == 1
    path.write_text(kept.read_text())
    assert len(record_facts(path).account.guarantee.weaker) == 2


def test_a_hubs_report_tells_who_took_part_and_what_left_and_no_score(treated: Any) -> None:
    found = document(treated, "hub")
    assert found["questions"] == {"want totals": 8}
    assert [(one["name"], one["n_rounds"]) for one in found["participants"]] == [(name, 8) for name in CLINICS]
    sent = [line for line in log_of(treated, "hub") if line["event"] == "sent"]
    assert [one["sha256"] for one in found["history"]["outgoing"]] == [line["sha256"] for line in sent]
    assert (found["fits"], found["ledger"], found["history"]["n_records"]) == ([], None, 0)
    model = load_model(treated.folder("hub") / "model.json")
    assert sum(one["n_splits"] for one in found["importance"]) == model.importance("split").sum()
    assert "Nobody dropped out." in (treated.folder("hub") / "report.html").read_text()


def test_a_workers_report_has_its_own_curve_and_its_ledger(treated: Any) -> None:
    found = document(treated, "north")
    (fit,) = found["fits"]
    assert (fit["basis"], fit["n_rows"]) == ("own training rows", 90)
    assert len(fit["curve"]) == 9
    assert found["ledger"]["is_charged"]
    assert found["ledger"]["spent"] == [found["account"]["guarantee"]["epsilon"], 1e-6]
    assert found["ledger"]["remaining"] == [pytest.approx(5.0 - found["ledger"]["spent"][0]), None]
    assert [one["name"] for one in found["participants"]] == ["hub"]
    # Whoever sends what: the other side received the same bytes.
    received = [
        line["sha256"] for line in log_of(treated, "hub") if line["event"] == "received" and line["peer"] == "north"
    ]
    assert [one["sha256"] for one in found["history"]["outgoing"]] == received


def test_drop_outs_are_in_the_report(treated: Any, tmp_path: Path) -> None:
    shutil.copytree(treated.root / "hub", tmp_path / "hub")
    log = tmp_path / "hub" / "runs" / "spring" / "log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines.insert(-1, {"time": "t", "seconds": 1.0, "event": "dropped out", "message": "the run goes on without west"})
    log.write_text("\n".join(map(json.dumps, lines)))
    folder = RunFolder(log.parent)
    meta = folder.read_json("meta.json")
    folder.write_json("meta.json", {**meta, "rounds_of": {**meta["rounds_of"], "west": 7}})
    found = record_facts(tmp_path / "hub" / "run.yaml")
    assert found.absences == (("t", "the run goes on without west"),)
    assert [one.n_rounds for one in found.participants] == [8, 8, 7]
    text = report_of(tmp_path / "hub" / "run.yaml").text("md")
    assert "the run goes on without west" in text
    assert "| west | 7 | 1 |" in text
    del meta["rounds_of"]
    folder.write_json("meta.json", meta)
    assert "| west | not noted | not noted |" in report_of(tmp_path / "hub" / "run.yaml").text("md")
    assert "Nobody dropped out" not in text


def forms(value: float) -> list[bytes]:
    raw = [np.array(value, kind).tobytes() for kind in ("<f8", ">f8", "<f4", ">f4")]
    text = [repr(value).encode(), f"{value:.4f}".encode(), f"{value:.6g}".encode()]
    return [*raw, *text, *(one.hex().encode() for one in raw), *(base64.b64encode(one).rstrip(b"=") for one in raw[:2])]


def found_in(haystacks: Iterable[bytes], needles: Sequence[bytes]) -> set[bytes]:
    joined = b"\0\0\0".join(haystacks)
    return {needle for needle in needles if needle in joined}


def test_no_byte_that_the_hub_received_and_none_of_its_files_holds_a_datum_of_a_clinic(treated: Any) -> None:
    ids = [name.encode() for table in treated.tables.values() for name in table["id"].head(30)]
    planted = [*forms(73.19046285), *forms(2.71828182846), b"zebra-7731-quagga", b"zebra-7731-quagga".hex().encode()]
    assert sum(map(len, treated.received)) > 5_000
    assert found_in(treated.received, [*planted, *ids]) == set()
    files = [path.read_bytes() for path in (treated.root / "hub").rglob("*") if path.is_file()]
    assert found_in(files, [*planted, *ids]) == set()
    others = [p.read_bytes() for name in CLINICS[1:] for p in (treated.root / name).rglob("*") if p.is_file()]
    assert found_in(others, planted) == set()
    # The same search finds it where it is.
    assert found_in([(treated.root / "north" / "data.csv").read_bytes()], planted) >= {b"zebra-7731-quagga"}
    own = [(treated.folder("north") / name).read_bytes() for name in ("report.html", "report.json", "log.jsonl")]
    assert found_in(own, planted) == set()


@pytest.mark.parametrize("name", ["hub", "north"])
def test_a_doctor_finds_a_sound_run_sound(hospitals: Any, name: str) -> None:
    found = examine(hospitals.write(name), wait_s=0.2)
    assert is_sound(found)
    terms = [one.sentence for one in found if one.check == "terms"]
    other = examine(hospitals.write("south"), wait_s=0.2)
    assert terms == [one.sentence for one in other if one.check == "terms"]
    assert not (hospitals.root / name / "runs").exists()


def test_a_doctor_is_not_held_up_by_whoever_listens_and_does_not_answer(hospitals: Any) -> None:
    host, port = hospitals.runs["hub"]["listen"].removeprefix("tcp://").split(":")
    with socket.create_server((host, int(port))):
        found = {one.check: one for one in examine(hospitals.write("north"), wait_s=0.5)}
        assert (found["peer"].status, found["keys"].status) == (Status.SKIPPED, Status.OK)
        assert "it may be started later" in found["peer"].sentence
        taken = {one.check: one for one in examine(hospitals.write("hub"), wait_s=0.5)}
        assert taken["address"].status is Status.PROBLEM


def test_a_doctor_names_what_is_wrong(hospitals: Any) -> None:
    table = hospitals.tables["south"]
    table["dose"] = 1.0
    table.loc[3, "age"] = 120
    found = {one.check: one for one in examine(hospitals.write("south"), wait_s=0.2)}
    assert found["column dose"].status is found["column age"].status is Status.WARNING
    assert "1 values lie outside the public bounds; they count in the outermost cells" in found["column age"].sentence
    table.loc[3, "ill"] = 2
    hospitals.runs["south"]["ledger"] = {"epsilon": 1.0}
    (hospitals.root / "south" / "keys" / "hub.public").unlink()
    found = {one.check: one for one in examine(hospitals.write("south"), wait_s=0.2)}
    for check, words in (("label", "must be 0 and 1"), ("budget", "over the budget of 1"), ("keys", "hub.public")):
        assert found[check].status is Status.PROBLEM
        assert words in found[check].sentence
    hospitals.training["threshold"] = 1
    (problem,) = examine(hospitals.write("hub"))
    assert "greater than or equal to 2" in problem.sentence


def test_the_model_of_any_role_scores_a_table_alone(treated: Any, tmp_path: Path) -> None:
    table = treated.tables["south"].drop(columns="ill")
    table.to_csv(tmp_path / "new.csv", index=False)
    written = {}
    for name in ("hub", "west"):
        out = tmp_path / f"{name}.csv"
        command = [
            "predict",
            str(treated.root / name / "run.yaml"),
            "--data",
            str(tmp_path / "new.csv"),
            "--out",
            str(out),
        ]
        assert CliRunner().invoke(app, command).exit_code == 0
        written[name] = pd.read_csv(out)
        again = CliRunner().invoke(app, command)
        assert (again.exit_code, "exists; give another file" in again.stderr) == (1, True)
    pd.testing.assert_frame_equal(written["hub"], written["west"])
    ordered = table.sort_values("id")
    model = load_model(treated.folder("hub") / "model.json")
    expected = model.predict(ordered[["age", "dose", "size"]].to_numpy())
    assert written["hub"]["id"].tolist() == ordered["id"].tolist()
    assert set(written["hub"]["status"]) == {"ok"}
    np.testing.assert_allclose(written["hub"]["prediction"], expected)
    uses = document(treated, "hub")["history"]["predictions"]
    assert [one["n_records"] for one in uses] == [90]


def test_predicting_alone_says_what_it_needs(treated: Any, hospitals: Any, tmp_path: Path) -> None:
    run = str(treated.root / "hub" / "run.yaml")
    for command, words in (
        (["predict", run], "name a file with --data"),
        (["predict", str(hospitals.write("north"))], "holds no trained model"),
        (["predict", run, "--mode", "routed"], "leave it out"),
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code != 0
        assert words in " ".join(done.stderr.replace("│", " ").split())


def test_facts_of_every_kind_are_plain_values(hospitals: Any) -> None:
    json.dumps(plain(record_plan(hospitals.write("south"))), allow_nan=False)


def test_an_account_that_was_never_charged_is_refused_in_words(hospitals: Any) -> None:
    done = CliRunner().invoke(app, ["ledger", str(hospitals.write("north"))])
    assert done.exit_code == 6
    assert "no run was charged" in done.stderr


def test_a_run_file_of_a_vertical_role_is_not_mistaken(make_sites: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        record_plan(make_sites(tmp_path).shop.write())
