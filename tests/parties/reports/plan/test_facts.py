"""The plan of a release: its numbers are those of the run, its sentences hold, and nothing leaves while it is made."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from opboost.desensitize import ColumnMechanism
from opboost.errors import DataError
from opboost.mechanism_settings import MechanismSettings
from opboost.order_metrics import bayes_attack, expected_weighted_kendall
from opboost.preprocess import encode
from opboost.privacy.guarantee import CHANGED_VALUES, ROUTED_ANSWERS, with_tests
from opboost.schema import ColumnSchema
from parties.cli import app
from parties.config.reading import read_run, read_schema
from parties.config.vertical import PassiveRun
from parties.doctor.vertical import examine
from parties.reports.plan.choices import MechanismGrid, alternatives_for, settings_of
from parties.reports.plan.facts import plan_of
from parties.reports.sentences import HAS_RELEASED, SEEDED
from parties.reports.writing import report_of

# Where other mechanisms do not matter: the chosen one, and baselines.
ALONE = MechanismGrid(mechanisms=("global",))


@pytest.fixture
def shop(make_sites: Any, tmp_path: Path) -> Any:
    """A shop whose columns are mapped to few points, so that tables are small."""
    found = make_sites(tmp_path).shop
    found.run["desensitize"] = {"epsilon": 0.5, "domain_size": 100, "theta": 10}
    return found


def copy_of(site: Any, to: Path) -> Any:
    """A copy of a party's folder, with whatever it has run."""
    found = copy.deepcopy(site)
    found.path = Path(shutil.copytree(site.path, to / site.party))
    return found


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def mechanism(lower: float = 0, upper: float = 5000, **settings: Any) -> ColumnMechanism:
    schema = ColumnSchema(name="income", lower=lower, upper=upper)
    return ColumnMechanism(schema, MechanismSettings(**{"domain_size": 1000, "epsilon": 0.1, **settings}))


def test_the_plans_guarantee_is_the_runs(finished: Any) -> None:
    plan = plan_of(finished.shop.write(), MechanismGrid(mechanisms=("global",)), wanted_order=())
    n_tests = len(json.loads((finished.shop.run_folder / "model.json").read_text())["tests"])
    promised = json.loads((finished.shop.run_folder / "guarantee.json").read_text())
    assert with_tests(plan.guarantee, n_tests).to_dict() == promised
    assert ROUTED_ANSWERS in plan.guarantee.not_protected
    assert f"{n_tests} exact bits per record" in str(promised["not_protected"])
    assert [column.promise for column in plan.columns] == list(plan.guarantee.columns)
    assert plan.ledger is not None
    assert plan.ledger.n_records == 400


def test_a_plan_says_how_many_exact_bits_are_answered_and_what_becomes_of_changed_values(shop: Any) -> None:
    text = report_of(shop.write()).text("md")
    assert "as many tests as its model has, which it says at the handshake" in text
    assert "drawn anew, which tells bank that it was changed" in text
    assert CHANGED_VALUES in text
    shop.run["active"]["agreed"] = {"tests": 70}
    shop.run["changed_values"] = "keep"
    text = report_of(shop.write()).text("md")
    assert "answered, one bit per split test and record: at most 70 tests, as was agreed on" in text
    assert "The first draw of every record and column stays" in text
    assert CHANGED_VALUES not in text
    for answers in ("tests", "cells"):
        shop.run["answers"] = answers
        text = report_of(shop.write()).text("md")
        assert "exact routing bits for new records and those released for training are answered" in text
        assert "records that were released for training are answered exactly too" in text.lower()
    shop.run |= {"allow_routed": True, "answers": "tests"}
    text = report_of(shop.write()).text("md")
    assert "exact routing bits for new records are answered" in text
    assert "released for training" not in text
    shop.run["allow_routed"] = False
    text = report_of(shop.write()).text("md")
    assert "exact routing bits for new records are refused" in text
    assert ROUTED_ANSWERS not in text


def test_a_plan_tells_values_of_times_as_dates_and_keeps_their_numbers_for_programs(shop: Any) -> None:
    seconds = pd.to_timedelta(np.arange(len(shop.table)) * 100_000, unit="s")
    shop.table["seen"] = (pd.Timestamp("2023-01-01") + seconds).strftime("%Y-%m-%d %H:%M").to_numpy()
    bounds = {"lower": "2023-01-01", "upper": "2024-12-31", "format": "%Y-%m-%d %H:%M"}
    shop.schema["columns"]["seen"] = {"kind": "datetime", **bounds}
    shop.run |= {"answers": "cells", "no_privacy": True, "desensitize": {"whole_range": 80.0}}
    report = report_of(shop.write(), grid=ALONE)
    text = report.text("md")
    for words in (
        "over the whole range 2023-01-01 to 2024-12-31",
        "ranges of 2023-01-01 to 2024-12-31 its seen lies",
        "wo people 2,000,000 seconds (about 23.1 days) apart in seen",
        "| 2024-01-04 16:29:05: the release says between 2023-",
        "without the release; exact to 7.37 days",
        "| one point of the domain | 7.37 days |",
        "| a difference of 500,000 seconds (about 5.79 days) costs |",
        "days without the release) |",
    ):
        assert words in text, words
    for section in text.split("\n## "):
        if "in seen" in section:
            assert not re.search(r"\d{9}|e\+|1,6\d\d,\d\d\d,\d\d\d|1,7\d\d,\d\d\d,\d\d\d", section)
    (seen,) = (one for one in json.loads(report.text("json"))["columns"] if one["promise"]["column"] == "seen")
    assert seen["bounds"] == [1_672_531_200, 1_735_603_200]
    assert seen["unit_s"] == 1
    assert seen["histogram"]["labels"][0] == "2023-01-01"


def test_a_plan_of_seeded_noise_is_not_signed_for_a_release(shop: Any) -> None:
    assert SEEDED not in plan_of(shop.write(), ALONE, wanted_order=()).warnings
    shop.run["seed"] = 7
    found = report_of(shop.write(), before=True).text("md")
    assert "this is not for release" in found
    assert found.index("this is not for release") < found.index("| column | verdict")


def test_a_plan_names_the_columns_that_records_are_compared_by(shop: Any) -> None:
    assert plan_of(shop.write(), ALONE, wanted_order=()).keys == ()
    shop.table["mail"] = shop.table["id"] + "@example.org"
    keys = [{"id": "spaces"}, {"mail": "email", "spend": []}]
    shop.run["align"] = {"method": "psi", "keys": keys}
    assert plan_of(shop.write(), ALONE, wanted_order=()).keys == ("id", "mail with spend")


def test_without_a_ledger_the_plan_says_that_nothing_was_released(shop: Any) -> None:
    assert plan_of(shop.write(), ALONE, wanted_order=()).ledger is None
    assert "nothing has been released" in report_of(shop.write()).text("md")


def test_every_candidates_numbers_are_those_of_its_table(shop: Any) -> None:
    path = shop.write()
    plan = plan_of(path, MechanismGrid(), wanted_order=())
    schema, _ = read_schema(read_run(path, PassiveRun).table_schema)
    own = read_run(path, PassiveRun).desensitize.mechanisms(schema)[0]
    codes = encode(shop.table["spend"], own.schema, domain=own.settings.domain).codes
    counts = np.bincount(codes - 1, minlength=100)
    for one, found in list(zip(alternatives_for(own, MechanismGrid()), plan.columns[0].candidates, strict=True))[::5]:
        if one.n_points != 100:
            continue
        table = one.choice.log_probabilities()
        assert found.settings == settings_of(one.choice)
        assert found.promise.domain_loss == one.choice.loss(99)
        assert found.outlook is not None
        assert found.verdict is not None
        assert found.outlook.kendall == expected_weighted_kendall(table, counts)
        assert found.outlook.attack == bayes_attack(table, counts)
        assert found.verdict.success >= found.outlook.attack.success or found.verdict.knows_others
    assert plan.columns[0].chosen.settings == {
        "mechanism": "global",
        "epsilon": 0.5,
        "law": "clamped",
        "domain_size": 100,
    }


def test_counts_and_histograms_hold_every_record(shop: Any) -> None:
    plan = plan_of(shop.write(), ALONE, wanted_order=())
    spend, visits = plan.columns
    assert (spend.n_values, spend.n_missing) == (400, 0)
    assert (visits.n_values, visits.n_missing) == (400 - visits.n_missing, int(shop.table["visits"].isna().sum()))
    for column in plan.columns:
        assert sum(column.histogram.before) == column.n_values
        assert sum(column.histogram.after) == pytest.approx(column.n_values)
        assert len(column.histogram.labels) == len(column.histogram.before) == len(column.histogram.after) == 40


def test_examples_are_points_of_the_public_range_not_of_the_data(shop: Any) -> None:
    def released() -> list[tuple[float, ...]]:
        examples = plan_of(shop.write(), ALONE, wanted_order=()).columns[0].examples
        return [(one.value, one.low, one.middle, one.high) for one in examples]

    before = released()
    shop.table["spend"] = np.linspace(3, 5, len(shop.table))
    assert released() == before
    assert all(low < middle < high for _, low, middle, high in before)


def test_an_observer_sees_an_examples_rank_among_the_releases_to_be_expected(shop: Any) -> None:
    path = shop.write()
    own = read_run(path, PassiveRun)
    (mechanism, _) = own.desensitize.mechanisms(read_schema(own.table_schema)[0])
    codes = encode(shop.table["spend"], mechanism.schema, domain=mechanism.settings.domain).codes
    kernel = np.exp(mechanism.value.log_probabilities())
    for one in plan_of(path, ALONE, wanted_order=()).columns[0].examples:
        low, high = (round(99 * value / 100) for value in (one.low, one.high))
        assert one.rank_low == pytest.approx(np.mean([kernel[code - 1, :low].sum() for code in codes]))
        assert one.rank_high == pytest.approx(np.mean([kernel[code - 1, : high + 1].sum() for code in codes]))


def test_the_suggested_budget_is_the_least_that_keeps_the_order(shop: Any) -> None:
    (column, _) = plan_of(shop.write(), ALONE, wanted_order=(0.5, 0.95)).columns
    assert [wanted for wanted, _ in column.least] == [0.5, 0.95]
    for wanted, epsilon in column.least:
        shop.run["desensitize"]["epsilon"] = epsilon
        outlook = plan_of(shop.write(), ALONE, wanted_order=()).columns[0].chosen.outlook
        assert outlook is not None
        assert outlook.kendall is not None
        assert wanted <= outlook.kendall <= wanted + 0.03


def test_a_plan_draws_writes_and_spends_nothing(shop: Any) -> None:
    path = shop.write()
    before = {file: file.read_bytes() for file in shop.path.rglob("*") if file.is_file()}
    plan_of(path, ALONE, wanted_order=(0.9,))
    assert {file: file.read_bytes() for file in shop.path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(("epsilon", "law"), [(50.0, "bounded_laplace"), (2000.0, "calibrated")])
def test_a_plan_of_a_large_budget_has_a_number_for_every_loss(shop: Any, epsilon: float, law: str) -> None:
    shop.run["no_privacy"] = True
    shop.run["desensitize"] |= {"epsilon": epsilon, "law": law, "mechanism": "adj", "domain_size": 60, "theta": 25}
    for column in plan_of(shop.write(), MechanismGrid(), wanted_order=()).columns:
        for one in column.candidates:
            # A Local-Map's losses are infinite across cells.
            is_local = one.settings["mechanism"] == "local"
            losses = [point.loss_in_cell if is_local else point.loss for point in one.promise.losses]
            assert all(loss is not None and math.isfinite(loss) for loss in losses)
            assert math.isfinite(one.promise.tight)
    assert "nan" not in report_of(shop.path / "run.yaml").text("md")


def test_a_domain_too_large_for_tables_is_reported_by_its_losses(shop: Any) -> None:
    shop.run["desensitize"] = {"epsilon": 0.01, "domain_size": 100_000}
    report = report_of(shop.write())
    chosen = report.document["columns"][0]["candidates"][0]
    assert chosen["outlook"] is None
    assert 0 < chosen["verdict"]["blind"] < chosen["verdict"]["success"] < 1
    assert chosen["promise"]["domain_loss"] == pytest.approx(0.01 * 99_999)
    assert "<svg" in report.text("html")


def test_the_forms_agree(shop: Any) -> None:
    report = report_of(shop.write())
    document = json.loads(report.text("json"))
    assert (document["format"], document["kind"]) == ("opboost-report", "plan")
    rows = list(csv.DictReader(io.StringIO(report.text("csv"))))
    assert {"section", "table", "row", "column", "value"} == set(rows[0])
    sentence = document["columns"][0]["sentence"]
    assert [row["value"] for row in rows if row["row"] == "spend" and row["column"] == "in words"] == [sentence]
    assert sentence in report.text("md")
    assert sentence in report.text("html")


def test_the_command_writes_beside_the_run_folder_and_leaves_that_alone(shop: Any) -> None:
    path = shop.write()
    code, out, err = run("report", str(path))
    home = shop.run_folder.with_name("spring.plan.html")
    assert (code, err) == (0, "")
    assert out.endswith(f"report: {home}\n")
    assert "cases; " in out
    assert home.with_suffix(".json").exists()
    assert not shop.run_folder.exists()


@pytest.mark.parametrize("form", ["json", "csv", "md"])
def test_other_forms_are_printed_and_nothing_is_written(shop: Any, form: str) -> None:
    code, out, _ = run("report", str(shop.write()), "--format", form)
    assert (code, len(out) > 1000) == (0, True)
    assert not (shop.path / "runs").exists()


def test_an_active_party_has_nothing_to_plan(make_sites: Any, tmp_path: Path) -> None:
    code, _, err = run("report", str(make_sites(tmp_path).bank.write()))
    assert code == 1
    assert "an active party releases no columns, so it has no plan; run 'spring' of bank is not finished" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mechanism", "map"], "--mechanism must be one of global, local, adj; found map"),
        (["--law", "gauss"], "--law must be one of"),
        (["--order", "1.5"], "between 0 and 1"),
        (["--epsilon", "-1"], "positive"),
    ],
)
def test_impossible_wishes_are_one_sentence(shop: Any, words: list[str], said: str) -> None:
    code, out, err = run("report", str(shop.write()), *words)
    assert (code, out) == (1, "")
    assert said in err


def test_what_a_run_would_refuse_a_plan_refuses(shop: Any) -> None:
    shop.table.loc[3, "spend"] = np.nan
    with pytest.raises(DataError, match="missing"):
        plan_of(shop.write(), ALONE, wanted_order=())


def test_a_changed_setting_changes_the_promise(shop: Any) -> None:
    """The twin of the tests above: they would not pass whatever the plan said."""
    before = plan_of(shop.write(), ALONE, wanted_order=())
    shop.run["desensitize"]["epsilon"] = 0.25
    after = plan_of(shop.write(), ALONE, wanted_order=())
    assert after.guarantee.epsilon < before.guarantee.epsilon
    assert after.columns[0].sentence != before.columns[0].sentence
    assert replace(after, columns=()) != replace(before, columns=())


def test_a_plan_and_the_doctor_say_that_earlier_releases_add_to_it(finished: Any, tmp_path: Path) -> None:
    """The same settings draw nothing anew; another budget of one column does, beside what is known of it."""
    site = copy_of(finished.shop, tmp_path)
    site.run["run_id"] = "autumn"
    plan = plan_of(site.write(), ALONE, wanted_order=())
    assert not [one for one in plan.warnings if "earlier runs" in one or "released already" in one]
    site.run["desensitize"] = {**site.run["desensitize"], "columns": {"spend": {"epsilon": 0.25}}}
    (told,) = [one for one in plan_of(site.write(), ALONE, wanted_order=()).warnings if "earlier runs" in one]
    assert told.startswith("spend: earlier runs released values under other settings")
    assert told in report_of(site.write()).warnings
    assert told in [one.sentence for one in examine(site.write(), wait_s=0.1) if one.check == "ledger"]


def test_a_plan_of_a_run_that_has_released_says_so(finished: Any, tmp_path: Path) -> None:
    """As of one that was broken off afterwards."""
    site = copy_of(finished.shop, tmp_path)
    meta = site.run_folder / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "finished": None}))
    assert HAS_RELEASED in plan_of(site.write(), ALONE, wanted_order=()).warnings
    assert HAS_RELEASED[1:] in report_of(site.write()).text("md")
