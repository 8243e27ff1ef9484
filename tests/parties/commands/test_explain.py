"""`opboost explain`: the active party's explanation of a run, and the passive party's reading of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from typer.testing import CliRunner

from parties.cli import app
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.reports.run_facts import run_facts


def _explain(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["explain", *map(str, words), "--format", "json"])
    return result.exit_code, result.stdout, result.stderr


def _train(sites: Any, outcomes: Callable[..., dict[str, Any]]) -> tuple[Path, Path]:
    """Train a run at both sites; returns their run files."""
    bank, shop = sites.bank.write(), sites.shop.write()
    parties = {"bank": (train_active, bank), "shop": (train_passive, shop)}
    calls = {
        name: lambda call=call, path=path: call(path, insecure=False, terminal=Terminal())
        for name, (call, path) in parties.items()
    }
    outcomes(calls)
    return bank, shop


def test_a_passive_party_reads_an_explanation_of_a_run_in_its_own_words(
    sites: Any, outcomes: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    # Every column is in some of so many trees, whatever noise there is.
    sites.bank.run |= {"correct_noise": True, "model": {"n_estimators": 30, "max_depth": 3}}
    bank, shop = _train(sites, outcomes)
    code, out, err = _explain(bank)
    assert code == 0, err
    shares = json.loads(out)["share_of_gain"]
    assert set(shares) == {"age", "shop: c0", "shop: c1"}
    told = sites.bank.run_folder / "explanation.json"
    # Once more, in place of what it has written itself.
    assert _explain(bank)[:2] == (0, out)
    assert json.loads(out)["explanation"] == str(told)
    # Cuts of own columns lie midway between own values: they are not for others.
    theirs = told.with_name("explanation-shop.json")
    assert '"age"' in told.read_text()
    assert '"age"' not in theirs.read_text()
    assert json.loads(out)["for_peers"] == {"shop": str(theirs)}
    assert set(json.loads(theirs.read_text())["trainings"]) == {"shop"}
    code, out, err = _explain(shop, "--of", theirs)
    assert code == 0, err
    assert _explain(bank, "--of", told)[0] == 1
    read = {one["column"]: one for one in json.loads((sites.shop.run_folder / told.name).read_text())["columns"]}
    assert set(read) == {"spend", "visits"}
    spend = read["spend"]
    assert spend["thresholds"] == sorted(spend["thresholds"])
    assert 0 < spend["thresholds"][0] < spend["thresholds"][-1] < 100
    assert len(spend["scores"]) == len(spend["thresholds"]) + 1
    assert spend["scores"][-1][0] > spend["scores"][0][0]

    reasons = tmp_path / "reasons.csv"
    pd.DataFrame({"id": ["=k1"], "reason_1": ["shop: c0"], "=HYPERLINK()": ["age"]}).to_csv(reasons, index=False)
    assert _explain(shop, "--of", reasons, "--out", tmp_path / "own.csv")[0] == 0
    own = pd.read_csv(tmp_path / "own.csv")
    # Neither cells nor headings of the other party's begin like a formula.
    assert own.columns.tolist() == ["id", "reason_1", "'=HYPERLINK()"]
    assert own.iloc[0].tolist() == ["'=k1", "spend", "age"]
    before = sites.shop.path / "data.csv", (sites.shop.path / "data.csv").read_bytes()
    for words in ((bank, "--out", bank), (shop, "--of", reasons, "--out", before[0]), (shop, "--of", before[0])):
        code, _, err = _explain(*words)
        assert (code, err.count("Nothing was written")) == (1, 1), err
    assert before[0].read_bytes() == before[1]
    # The other party chose the name of its file, and most of what is in it.
    (tmp_path / "model.json").write_text('{"run_id": "spring", "columns": [], "tests": []}')
    kept = (sites.shop.run_folder / "model.json").read_text()
    assert _explain(shop, "--of", tmp_path / "model.json")[0] == 0
    assert (sites.shop.run_folder / "model.json").read_text() == kept
    of_run = '"run_id": "spring", "columns": []'
    texts = {"bad": "[1]", "deep": "[" * 200_000, "nan": f'{{{of_run}, "a": NaN}}', "no_run": '{"columns": []}'}
    for name, text in {**texts, "odd": f'{{{of_run}, "trainings": []}}'}.items():
        (tmp_path / f"{name}.json").write_text(text)
    files = ("none.csv", "bad.json", "deep.json", "nan.json", "no_run.json", "odd.json")
    for words in ((shop,), *((shop, "--of", tmp_path / name) for name in files)):
        code, _, err = _explain(*words)
        assert code == 1
        assert "explanation" in err


def test_both_parties_read_values_of_times_as_dates(sites: Any, outcomes: Callable[..., dict[str, Any]]) -> None:
    bounds = {"kind": "date", "lower": "2020-01-01", "upper": "2024-12-31"}
    for site, name, of in ((sites.bank, "since", "age"), (sites.shop, "seen", "spend")):
        days = pd.to_timedelta(site.table[of] * 10 // 1, unit="D")
        site.table[name] = (pd.Timestamp("2020-06-01") + days).dt.strftime("%Y-%m-%d")
        site.table, site.schema["columns"][name] = site.table.drop(columns=of), bounds
        del site.schema["columns"][of]
    sites.bank.run |= {"model": {"n_estimators": 30, "max_depth": 3}}
    bank, shop = _train(sites, outcomes)
    told = sites.bank.run_folder / "explanation.json"
    assert _explain(bank)[0] == 0
    assert _explain(shop, "--of", told)[0] == 0
    for site, name, others in ((sites.bank, "since", ()), (sites.shop, "seen", ("visits",))):
        read = {one["column"]: one for one in json.loads((site.run_folder / told.name).read_text())["columns"]}
        numbers, times = read[name]["thresholds"], read[name]["times"]
        assert numbers
        assert all(18_262 <= number <= 20_088 for number in numbers)
        assert [date(1970, 1, 1) + timedelta(int(number)) for number in numbers] == list(map(date.fromisoformat, times))
        assert not any("times" in read[other] for other in others)
    (sentence,) = (one.sentence for one in run_facts(shop).columns if one.column == "seen")
    assert re.search(r"that differ by \d+ days? in seen are .* over the whole range 2020-01-01 to 2024-12-31", sentence)


def test_an_explanation_of_another_run_is_refused_with_both_named(
    sites: Any, outcomes: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """The numbers of its tests are places in another list of tests: thresholds of the wrong ones were written."""
    bank, shop = _train(sites, outcomes)
    told, own = tmp_path / "told.json", tmp_path / "own.json"
    assert _explain(bank, "--out", told)[0] == 0
    document = json.loads(told.read_text())
    digest = document["trainings"]["shop"]
    for changed, words in (
        ({"run_id": "autumn"}, ("is of run 'autumn'", "this party's is 'spring'")),
        ({"run_id": ["x" * 1000]}, ("is of run ['", "this party's is 'spring'")),
        ({"trainings": {"shop": "0" * 64}}, ("00000000", digest[:8])),
    ):
        told.write_text(json.dumps(document | changed))
        code, _, err = _explain(shop, "--of", told, "--out", own)
        assert code == 1
        assert all(one in err for one in words), err
        assert err.count("Nothing was written") == 1
        assert len(err) < 600
        assert not own.exists()
    # Explanations of earlier versions have no digests, and runs of earlier versions kept none.
    told.write_text(json.dumps({key: value for key, value in document.items() if key != "trainings"}))
    assert _explain(shop, "--of", told, "--out", own)[0] == 0
    told.write_text(json.dumps(document))
    (sites.shop.run_folder / "trainings.json").unlink()
    assert _explain(shop, "--of", told, "--out", own)[0] == 0
