"""Runs whose parties do not know the same records: from run files to predictions, in threads and as processes."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.errors import ParameterError
from opboost.trees.model_file import save_model
from parties.config.align_section import AlignSection
from parties.config.reading import read_run
from parties.config.vertical import ActiveRun
from parties.doctor.check_result import Status
from parties.doctor.vertical import examine
from parties.errors import Disagreement, RunFolderError, TableError
from parties.jobs.answer_vertical import serve_passive
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.vertical import alignment
from parties.vertical.party_a import train_jointly
from parties.vertical.party_b import train
from protocols.alignment import sorted_rows
from protocols.errors import KeyFileError, NothingInCommon, PeerAborted
from protocols.messages.vertical import RankChunk
from protocols.transport.keys import generate_shared, read_shared

Outcomes = Callable[..., dict[str, Any]]
SILENT = Terminal()
HASHED = {"method": "hashed", "secret": "keys/both.shared"}


def unaligned(sites: Any, align: dict[str, Any] | None) -> list[str]:
    """Let the bank forget 60 customers and the shop 40 others; returns the ids that both still know."""
    sites.bank.table = sites.bank.table.iloc[60:].reset_index(drop=True)
    known = sites.bank.table["id"].iloc[:40]
    sites.shop.table = sites.shop.table[~sites.shop.table["id"].isin(known)].reset_index(drop=True)
    for site in (sites.bank, sites.shop):
        site.run.pop("align")
        if align is not None:
            site.run["align"] = dict(align)
    if align == HASHED:
        generate_shared(sites.bank.path / "keys", "both")
        copy = sites.shop.path / "keys" / "both.shared"
        copy.write_text((sites.bank.path / "keys" / "both.shared").read_text())
        copy.chmod(0o600)
    return sorted(set(sites.bank.table["id"]) & set(sites.shop.table["id"]))


def train_both(sites: Any, outcomes: Outcomes, say: Callable[[str], None] = lambda sentence: None) -> dict[str, Any]:
    bank, shop, terminal = sites.bank.write(), sites.shop.write(), Terminal(say=say)
    return outcomes(
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=terminal),
            "shop": lambda: train_passive(shop, insecure=False, terminal=terminal),
        }
    )


def events(site: Any, event: str) -> list[dict[str, Any]]:
    lines = (site.run_folder / "log.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == event]


def all_logs(site: Any) -> str:
    return "".join((site.run_folder / name).read_text() for name in ("log.jsonl", "log.txt", "meta.json"))


@pytest.mark.parametrize("align", [None, HASHED], ids=["psi", "hashed"])
def test_a_run_trains_on_the_common_records_and_no_id_is_logged(sites: Any, outcomes: Outcomes, align: Any) -> None:
    common = unaligned(sites, align)
    found = train_both(sites, outcomes)
    for name, site, n_own in (("bank", sites.bank, 340), ("shop", sites.shop, 360)):
        assert found[name].read_json("meta.json")["n_rows"] == len(common) == 300
        (line,) = events(site, "aligned")
        assert (line["n_common"], line["n_own"], list(line["n_theirs"].values())) == (300, n_own, [700 - n_own])
        assert not [
            record_id for record_id in [*sites.bank.table["id"], *sites.shop.table["id"]] if record_id in all_logs(site)
        ]
        assert len(events(site, "hashed ids")) == (align == HASHED)


def test_the_result_does_not_depend_on_how_the_records_were_aligned(sites: Any, outcomes: Outcomes) -> None:
    common = unaligned(sites, None)
    sites.shop.run["desensitize"]["epsilon"] = float("inf")
    sites.shop.run["no_privacy"] = True
    models, kept = {}, []
    by_points = {"method": "psi-dh"}
    ways = [("psi", None), ("points", by_points), ("prepared", by_points), ("listed", {"method": "prealigned"})]
    for name, align in ways:
        for site in (sites.bank, sites.shop):
            site.run["run_id"] = name
            if align:
                site.run["align"] = dict(align)
        if align == by_points:
            sites.shop.run["align"]["prepared"] = "ids.prepared"
        if name == "listed":
            for site in (sites.bank, sites.shop):
                (site.path / "ids.txt").write_text("\n".join(common))
                site.run["ids"] = "ids.txt"
        found = train_both(sites, outcomes)
        models[name] = (found["bank"].path / "model.json").read_text()
        kept.append((sites.shop.path / "ids.prepared").read_bytes() if "points" in models else b"")
    assert models["psi"] == models["points"] == models["prepared"] == models["listed"]
    assert kept[1] == kept[2] != b""


def test_what_was_released_for_the_common_records_is_used_again(sites: Any, outcomes: Outcomes) -> None:
    unaligned(sites, None)
    train_both(sites, outcomes)
    share = (sites.shop.run_folder / "order.share").read_text()
    for site in (sites.bank, sites.shop):
        site.run["run_id"] = "autumn"
    found = train_both(sites, outcomes)
    lines = (found["shop"].path / "log.jsonl").read_text().splitlines()
    (released,) = [line for line in map(json.loads, lines) if line["event"] == "released"]
    assert (released["n_drawn"], released["n_reused"]) == (0, 2)
    assert (found["shop"].path / "order.share").read_text() != share


def test_a_passive_party_that_repeats_its_run_keeps_its_share_of_the_order(sites: Any, outcomes: Outcomes) -> None:
    unaligned(sites, None)
    model = sites.bank.run["model"]
    sites.bank.run["model"] = model | {"monotone_constraints": {"what nobody brings": 1}}
    found = train_both(sites, outcomes)
    assert isinstance(found["bank"], ParameterError)
    assert isinstance(found["shop"], PeerAborted)
    shares = [(site.run_folder / "order.share").read_text() for site in (sites.bank, sites.shop)]
    sites.bank.run["model"] = model
    train_both(sites, outcomes)
    assert shares == [(site.run_folder / "order.share").read_text() for site in (sites.bank, sites.shop)]
    for site in (sites.bank, sites.shop):
        assert (site.run_folder / "order.share").stat().st_mode & 0o777 == 0o600


def test_two_processes_align_train_and_predict(sites: Any) -> None:
    unaligned(sites, None)
    processes = [sites.bank.start("party-a"), sites.shop.start("party-b")]
    ends = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    processes = [sites.bank.start("predict"), sites.shop.start("predict")]
    assert [process.wait(60) for process in processes] == [0, 0]
    predictions = pd.read_csv(sites.bank.run_folder / "predictions.csv")
    assert predictions["id"].tolist() == sorted(sites.bank.table["id"])
    known = predictions["id"].isin(sites.shop.table["id"])
    assert (predictions["status"] == np.where(known, "ok", "missing_passive_columns")).all()
    for process in processes:
        process.communicate()


@pytest.mark.parametrize("victim", ["shop", "bank"])
def test_a_party_that_dies_while_ids_are_compared_ends_the_other_one_in_time(sites: Any, victim: str) -> None:
    ids = [f"k{i:06}" for i in range(40_000)]
    draw = np.random.default_rng(1)
    sites.bank.table = pd.DataFrame(
        {"id": ids, "age": draw.integers(18, 91, len(ids)), "y": draw.integers(0, 2, len(ids))}
    )
    sites.shop.table = pd.DataFrame(
        {"id": ids, "spend": draw.integers(0, 101, len(ids)), "visits": draw.integers(0, 51, len(ids))}
    )
    for site in (sites.bank, sites.shop):
        site.run.pop("align")
        site.run["wait"] = 4
    processes = {"bank": sites.bank.start("party-a"), "shop": sites.shop.start("party-b")}
    log = sites.bank.run_folder / "log.jsonl"
    try:
        deadline = time.monotonic() + 30
        while not (log.exists() and '"blinded ids"' in log.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        processes[victim].kill()
        struck = time.monotonic()
        (survivor,) = set(processes) - {victim}
        _, error = processes[survivor].communicate(timeout=20)
        assert time.monotonic() - struck < 4 + 8
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    assert processes[survivor].returncode == 3
    assert error.splitlines()[-1].startswith(f"error: {victim} closed the connection or was silent for 10 s, and ")
    assert "Traceback" not in error


def test_records_with_an_id_of_several_columns_and_repeated_rows_are_aligned(sites: Any, outcomes: Outcomes) -> None:
    for site in (sites.bank, sites.shop):
        numbers = site.table.pop("id").str[1:].astype(int)
        site.table = site.table.assign(branch=numbers // 100, number=numbers % 100)
        site.schema["id"] = ["branch", "number"]
        site.run["align"] = {"duplicates": "first"}
    sites.shop.table = pd.concat([sites.shop.table, sites.shop.table.iloc[:50].assign(spend=1.0)])
    found = train_both(sites, outcomes)
    assert found["shop"].read_json("meta.json")["n_rows"] == 400
    predicted = outcomes(
        {
            "bank": lambda: predict_active(
                sites.bank.path / "run.yaml",
                data=None,
                ids=None,
                mode="routed",
                out=None,
                insecure=False,
                terminal=SILENT,
            ),
            "shop": lambda: serve_passive(sites.shop.path / "run.yaml", data=None, insecure=False, terminal=SILENT),
        }
    )
    predictions = pd.read_csv(predicted["bank"])
    assert predictions.columns.tolist() == ["id", "id.branch", "id.number", "prediction", "status"]
    assert len(predictions.drop_duplicates(["id.branch", "id.number"])) == 400
    assert set(predictions["status"]) == {"ok"}


def keyed(sites: Any) -> None:
    """Let each party call its customers by numbers of its own, and write what both know in its own way."""
    numbers = {
        name: site.table["id"].str[1:].astype(int) for name, site in (("bank", sites.bank), ("shop", sites.shop))
    }
    # The bank lacks the numbers of 30 customers and 5 e-mail addresses, the shop the numbers of 40 others.
    for name, site in (("bank", sites.bank), ("shop", sites.shop)):
        n = numbers[name]
        is_bank = name == "bank"
        without = n < 30 if is_bank else (n >= 30) & (n < 70)
        number = ("AB " if is_bank else "ab") + n.astype(str)
        mail = ("C" if is_bank else "c") + n.astype(str) + "@x.de"
        own = (n + 5000 if is_bank else 9999 - n).astype(str)
        site.table = site.table.assign(id=own, number=number.mask(without), mail=mail.mask(n < 5) if is_bank else mail)
        site.run["align"] = {"keys": [{"number": ["case", "spaces"]}, {"mail": "email"}]}


def test_records_are_compared_by_several_keys_and_named_by_own_ids(sites: Any, outcomes: Outcomes) -> None:
    sites.shop.run["desensitize"]["epsilon"] = float("inf")
    sites.shop.run["no_privacy"] = True
    listed = {name: site.table.copy() for name, site in (("bank", sites.bank), ("shop", sites.shop))}
    for name, site in (("bank", sites.bank), ("shop", sites.shop)):
        site.run["run_id"] = "listed"
        site.table = listed[name][listed[name]["id"].str[1:].astype(int) >= 5]
    plain = train_both(sites, outcomes)
    for name, site in (("bank", sites.bank), ("shop", sites.shop)):
        site.table = listed[name]
        site.run["run_id"] = "spring"
    keyed(sites)
    found = train_both(sites, outcomes)
    assert (found["bank"].path / "model.json").read_text() == (plain["bank"].path / "model.json").read_text()
    for site, with_number, with_mail in ((sites.bank, 370, 395), (sites.shop, 360, 400)):
        (line,) = events(site, "aligned")
        assert (line["n_by_key"], line["n_with_key"]) == ([330, 65], [with_number, with_mail])
        assert "330 by key 1, which " in all_logs(site)
        assert not [
            one for one in [*sites.bank.table["mail"].dropna(), *sites.shop.table["mail"]] if one in all_logs(site)
        ]
    # Records are asked for by the first key that they have, and written by their own ids.
    path = sites.bank.path / "run.yaml"
    predicted = outcomes(
        {
            "bank": lambda: predict_active(
                path, data=None, ids=None, mode="routed", out=None, insecure=False, terminal=SILENT
            ),
            "shop": lambda: serve_passive(sites.shop.path / "run.yaml", data=None, insecure=False, terminal=SILENT),
        }
    )
    predictions = pd.read_csv(predicted["bank"]).set_index("id")["status"]
    assert sorted(predictions.index) == sorted(sites.bank.table["id"].astype(int))
    # 330 have numbers on both sides, 25 are asked for by mail; the bank's numbers of 40 others tell the shop nothing.
    assert (predictions == "ok").sum() == 330 + 25


def test_held_out_records_are_asked_for_by_what_they_were_compared_by(sites: Any, outcomes: Outcomes) -> None:
    keyed(sites)
    for site in (sites.bank, sites.shop):
        site.run |= {"held_out": 0.2, "answers": "cells"}
    found = train_both(sites, outcomes)
    (line,) = events(sites.shop, "held out")
    assert line["answered"] == line["records"] > 40
    assert found["bank"].read_json("meta.json")["n_rows"] == 395 - line["records"]


def test_other_rules_or_keys_that_several_records_have_are_told_before_anything_is_spent(
    sites: Any, outcomes: Outcomes
) -> None:
    keyed(sites)
    sites.shop.run["align"] = {"keys": [{"number": "case"}, {"mail": "email"}]}
    found = train_both(sites, outcomes)
    for name in ("bank", "shop"):
        assert isinstance(found[name], Disagreement)
        assert "keys: case+spaces; email" in str(found[name])
        assert "keys: case; email" in str(found[name])
    sites.shop.table["mail"] = "Same@x.de"
    with pytest.raises(TableError, match=r"key 2 \(mail\) is the same in 400 of 400 rows"):
        train_passive(sites.shop.write(), insecure=False, terminal=SILENT)
    assert not events(sites.shop, "released")


DIFFERENCES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "method": ({"method": "prealigned"}, ["psi, duplicates: refuse", "prealigned, duplicates: refuse"]),
    "duplicates": ({"duplicates": "drop"}, ["psi, duplicates: refuse", "psi, duplicates: drop"]),
}


@pytest.mark.parametrize(("align", "words"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_another_way_to_align_is_told_on_both_sides_before_anything_is_spent(
    sites: Any, outcomes: Outcomes, align: dict[str, Any], words: list[str]
) -> None:
    sites.bank.run["align"], sites.shop.run["align"] = {"method": "psi"}, {"method": "psi"} | align
    found = train_both(sites, outcomes)
    for name in ("bank", "shop"):
        assert isinstance(found[name], Disagreement)
        assert [word for word in words if word not in str(found[name])] == []
        assert "sets of ids differ" not in str(found[name])
    assert not events(sites.shop, "released")


def test_another_number_of_id_columns_or_another_secret_is_told_on_both_sides(sites: Any, outcomes: Outcomes) -> None:
    unaligned(sites, HASHED)
    (sites.shop.path / "keys" / "both.shared").unlink()
    generate_shared(sites.shop.path / "keys", "both")
    sites.shop.table["second"] = 1
    sites.shop.schema["id"] = ["id", "second"]
    found = train_both(sites, outcomes)
    secret = read_shared(sites.shop.path / "keys" / "both.shared").hex()
    for name in ("bank", "shop"):
        assert "id columns: 1, secret " in str(found[name])
        assert "id columns: 2, secret " in str(found[name])
        assert secret[:16] not in str(found[name])


def test_sets_that_do_not_meet_are_refused_on_both_sides_in_a_sentence(sites: Any, outcomes: Outcomes) -> None:
    unaligned(sites, None)
    sites.shop.table["id"] = "other " + sites.shop.table["id"]
    found = train_both(sites, outcomes)
    assert isinstance(found["bank"], NothingInCommon)
    sentence = "not one id is common to all 2 parties. Nothing was released"
    assert str(found["bank"]) == sentence
    assert str(found["shop"]) == f"bank ended the run while aligning the records: {sentence}"
    assert not events(sites.shop, "released")


@pytest.mark.parametrize("align", [None, HASHED], ids=["psi", "hashed"])
def test_no_room_for_ids_that_are_compared_is_one_sentence(
    sites: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch, align: Any
) -> None:
    unaligned(sites, align)

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sorted_rows, "temporary_file", lambda owner: Full())
    found = train_both(sites, outcomes)
    sentence = r"ids that are compared cannot be written to .*: No space left on device\. No ranks were sent"
    for error in found.values():
        assert isinstance(error, PeerAborted) or (isinstance(error, RunFolderError) and re.match(sentence, str(error)))
    assert any(isinstance(error, RunFolderError) for error in found.values())


@pytest.mark.parametrize("engine", ["native", "xgboost"])
@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror", "count:poisson", "multi:softprob"])
def test_what_is_constant_among_the_common_records_trains(
    sites: Any, outcomes: Outcomes, engine: str, objective: str
) -> None:
    unaligned(sites, None)
    sites.bank.run["model"] |= {"engine": engine, "objective": objective, "n_classes": 2, "validation_fraction": 0.2}
    of_bank, of_shop = (
        mine.table["id"].isin(other.table["id"]) for mine, other in ((sites.bank, sites.shop), (sites.shop, sites.bank))
    )
    sites.bank.table = sites.bank.table.assign(y=np.where(of_bank, 1, 0), age=np.where(of_bank, 20.0, 30.0))
    sites.shop.table = sites.shop.table.assign(spend=np.where(of_shop, 1.0, 2.0), visits=np.where(of_shop, np.nan, 2.0))
    found = train_both(sites, outcomes)
    for name in ("bank", "shop"):
        assert found[name].read_json("meta.json")["n_rows"] == 300


def test_a_damaged_share_of_the_order_is_refused(sites: Any, outcomes: Outcomes) -> None:
    unaligned(sites, None)
    sites.shop.write()
    sites.shop.run_folder.mkdir(parents=True)
    for text in ("", "00", "no hex"):
        (sites.shop.run_folder / "order.share").write_text(text)
        (sites.shop.run_folder / "meta.json").write_text(json.dumps({"released": False}))
        found = train_both(sites, outcomes)
        assert "order.share cannot be read; choose another run_id. Nothing was sent" in str(found["shop"])


def test_ranks_travel_in_the_agreed_order_and_the_model_is_the_same(together: Any, trial: Any, tmp_path: Path) -> None:
    order = np.random.default_rng(4).permutation(300)
    sent: list[RankChunk] = []

    def take_part(channel: Any, **changes: Any) -> Any:
        send = channel.send
        channel.send = lambda message: (sent.append(message) if isinstance(message, RankChunk) else None, send(message))
        return train(trial.passive("post", epsilon=np.inf, **changes), channel)

    plain = together(lambda channels: train_jointly(trial.active(), channels), {"post": take_part})
    shuffled = together(
        lambda channels: train_jointly(trial.active(orders={"post": order}), channels),
        {"post": lambda channel: take_part(channel, order=order)},
    )
    assert (sent[1].ranks == sent[0].ranks[order]).all()
    for name, found in (("plain", plain), ("shuffled", shuffled)):
        save_model(found["bank"].ensemble, tmp_path / name)
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "shuffled").read_bytes()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_of_the_shops_file_shows_in_nothing_that_it_sends(sites: Any, outcomes: Outcomes, seed: int) -> None:
    # Without noise, the same shares of the order on both sides: only the file order differs, and the ranks do not.
    sites.shop.run["desensitize"]["epsilon"] = float("inf")
    sites.shop.run["no_privacy"] = True
    unaligned(sites, None)
    digests = []
    for run_id, table in (("one", sites.shop.table), ("two", sites.shop.table.sample(frac=1, random_state=seed))):
        sites.shop.table = table
        for site in (sites.bank, sites.shop):
            site.run["run_id"] = "spring"
            site.run["folder"] = f"runs/{run_id}"
            folder = site.path / "runs" / run_id
            folder.mkdir(parents=True)
            (folder / "order.share").write_text(json.dumps(site.party.encode().hex().rjust(64, "0")))
            (folder / "meta.json").write_text(json.dumps({"released": False}))
        found = train_both(sites, outcomes)
        lines = map(json.loads, (found["shop"].path / "log.jsonl").read_text().splitlines())
        digests.append([line["sha256"] for line in lines if line.get("kind") == "rank chunk"])
    assert len(digests[0]) == 2
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("align", "words"),
    [
        ({"method": "hashed"}, "`method: hashed` and a `secret` file that all parties share go together"),
        ({"secret": "x.shared"}, "go together"),
        ({"method": "psi-dh", "prepared": "p"}, "`align.prepared` is a passive party's, which prepares its ids"),
        ({"method": "guess"}, "align.method: must be 'psi', 'psi-dh', 'hashed' or 'prealigned'"),
        (
            {"method": "prealigned", "keys": ["mail"]},
            "`align.keys` are compared by `method: psi`, `psi-dh` or `hashed`",
        ),
        ({"keys": [{"mail": "lower"}]}, "align.keys.0.mail.0: "),
        ({"duplicates": "any"}, "align.duplicates: must be 'refuse', 'first', 'last' or 'drop'"),
    ],
)
def test_an_impossible_section_is_refused(sites: Any, align: dict[str, Any], words: str) -> None:
    sites.bank.run["align"] = align
    with pytest.raises(Exception, match="align") as refusal:
        read_run(sites.bank.write(), ActiveRun)
    assert words in str(refusal.value)


def test_without_a_list_of_ids_the_method_is_private_set_intersection() -> None:
    assert AlignSection().method_for(None) == "psi"
    assert AlignSection().method_for(Path("ids.txt")) == "prealigned"
    assert AlignSection(method="psi").method_for(Path("ids.txt")) == "psi"


def test_a_shared_secret_is_made_by_the_command_and_kept_private(sites: Any, outcomes: Outcomes) -> None:
    from typer.testing import CliRunner

    from parties.cli import app

    made = CliRunner().invoke(app, ["keygen", "both", "--shared", "--folder", str(sites.bank.path / "keys")])
    path = sites.bank.path / "keys" / "both.shared"
    assert made.output.strip() == f"shared: {path}"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="has mode 0644"):
        read_shared(path)
    with pytest.raises(KeyFileError, match=r"both\.shared exists; a key is never replaced"):
        generate_shared(sites.bank.path / "keys", "both")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (OSError("/tmp/a.so: failed to map segment from shared object"), "(noexec)"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_a_directory_for_temporary_files_that_takes_no_library_is_told_before_a_peer_is_met(
    sites: Any, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch, reason: OSError, words: str
) -> None:
    """Such as many servers have. The reason was None, after a peer had come, and the doctor had found nothing."""

    def load() -> None:
        raise reason

    unaligned(sites, {"method": "psi"})
    monkeypatch.setattr(alignment, "load_group", load)
    result = train_both(sites, outcomes)
    for party in ("bank", "shop"):
        assert isinstance(result[party], RunFolderError)
        assert words in str(result[party])
        assert str(result[party]).endswith("let all parties say `psi-dh`. Nothing was sent")
    found = examine(sites.bank.write(), wait_s=0.2)
    assert [one.sentence for one in found if one.status is Status.PROBLEM] == [str(result["bank"])]
