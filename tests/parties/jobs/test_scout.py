"""Lines that scouting offers for run files: they can be copied, and spend no more than before."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from opboost.privacy.guarantee import Guarantee, compose
from opboost.schema import ColumnSchema, Kind, TableSchema
from opboost.uplift import ColumnUse, Uplift
from parties.config.desensitize_section import DesensitizeSection
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import ConfigError, RunFolderError
from parties.jobs.life_cycle import Terminal
from parties.jobs.scout import active_lines, load_uses, passive_lines, scout, scouting, split
from parties.reports.sentences import odds
from parties.runs.run_folder import RunFolder
from parties.storage.atomic_files import make_folder

SCHEMA = TableSchema(
    columns=(
        ColumnSchema(name="spend", lower=0, upper=5000),
        ColumnSchema(name="visits", lower=0, upper=60),
        ColumnSchema(name="grade", kind=Kind.ORDERED, categories=("low", "fair", "good")),
        ColumnSchema(name="region", kind=Kind.UNORDERED, categories=("north", "south", "west")),
    )
)


def guarantee() -> Guarantee:
    return compose(tuple(one.guarantee() for one in DesensitizeSection().mechanisms(SCHEMA)), is_secure=True)


def use(column: str, uplift: float, low: float) -> ColumnUse:
    found = Uplift(metric="auc", n_rows=10, n_held_out=10, uplift=uplift, low=low, high=2 * uplift)
    return ColumnUse("shop", (column,), found)


USES = (use("spend", 0.08, 0.07), use("visits", 0.01, 0.005), use("grade", 0.001, -0.01), use("region", 0.02, -0.001))


def test_the_lines_for_a_passive_party_can_be_copied_and_spend_no_more_than_before() -> None:
    text = passive_lines("shop", guarantee(), USES)
    assert yaml.safe_load(text) == {"desensitize": {"leave_out": ["grade", "region"]}}
    taken = [line.replace("# ", "", 1) for line in text.splitlines() if "pay again" not in line]
    found = DesensitizeSection(**yaml.safe_load("\n".join(taken))["desensitize"]).mechanisms(SCHEMA)
    losses = {one.schema.name: one.guarantee().domain_loss for one in found}
    before = sum(one.domain_loss for one in guarantee().columns if one.column != "region")
    assert set(losses) == {"spend", "visits"}
    assert 0.98 * before < sum(losses.values()) <= before
    assert losses["spend"] / losses["visits"] == pytest.approx(8 ** (1 / 3), rel=0.01)


def test_a_divided_budget_says_beside_it_what_it_protects() -> None:
    lines = passive_lines("shop", guarantee(), USES).splitlines()
    told = "over the whole range, records are told apart with odds at most"
    (spend,) = (line for line in lines if "spend:" in line)
    assert spend.endswith(f"  # {told} e^13.7 to 1, which is no protection")
    (visits,) = (line for line in lines if "visits:" in line)
    assert visits.endswith(f"  # {told} {odds(6.83)}")


def test_the_active_party_agrees_on_the_columns_of_ranks_that_are_left() -> None:
    assert active_lines("shop", guarantee(), USES) == {"name": "shop", "agreed": {"columns": 2}}
    assert active_lines("shop", guarantee(), USES[:3])["agreed"] == {"columns": 5}


def test_a_party_of_which_nothing_helps_is_told_so_and_not_to_leave_everything_out() -> None:
    text = passive_lines("shop", guarantee(), [use(one.column, 0.0, -0.1) for one in guarantee().columns])
    assert text.startswith("# No column of shop adds anything")
    assert yaml.safe_load(text) is None


def test_a_split_in_proportion_to_the_uses_themselves_would_do_more_harm() -> None:
    """The broken twin: cube roots minimise the sum of uses over squared budgets."""
    roots, total = split("shop", guarantee(), USES), 8.0 + 8.0 + 4.6
    harm = {"spend": 0.08, "visits": 0.01}
    even = sum(each / (total / 2) ** 2 for each in harm.values())
    linear = sum(each / (total * each / sum(harm.values())) ** 2 for each in harm.values())
    assert sum(harm[name] / loss**2 for name, loss in roots.items()) < min(even, linear)
    assert math.isclose(sum(roots.values()), total, rel_tol=0.02)


def test_a_scouting_run_has_a_name_a_folder_and_a_number_of_its_own(sites: Any) -> None:
    sites.bank.run["held_out"] = 0.2
    run = scouting(sites.bank.write(), ActiveRun, 150)
    assert (run.run_id, run.run_folder.name) == ("spring-scout", "spring-scout")
    assert (run.most_records, run.report) == (150, False)
    for folder in ("elsewhere", "elsewhere/"):
        sites.bank.run["folder"] = folder
        assert scouting(sites.bank.write(), ActiveRun, 150).run_folder == sites.bank.path / "elsewhere-scout"


NO_COLUMNS = json.dumps({"uses": [asdict(replace(USES[0], columns=()))]})


@pytest.mark.parametrize("content", ["{}", '{"uses": [1]}', '{"uses": [{"owner": "shop"}]}', NO_COLUMNS])
def test_damaged_uses_are_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "uses.json").write_text(content)
    with pytest.raises(RunFolderError, match=r"uses\.json is malformed"):
        load_uses(RunFolder(tmp_path))


def test_a_note_of_the_run_without_the_number_of_records_is_told(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended in a traceback, of a key that was not there."""
    sites.shop.run["held_out"] = 0.2
    folder = RunFolder(sites.shop.run_folder)
    make_folder(folder.path)
    (folder.path / "meta.json").write_text('{"n_rowr": 150}')
    monkeypatch.setattr("parties.jobs.scout.train_passive", lambda *_, **__: folder)
    with pytest.raises(RunFolderError, match=r"meta\.json is malformed; bring a copy of it back"):
        scout(sites.shop.write(), records=150, insecure=False, terminal=Terminal())


def test_what_cannot_be_scouted_is_refused(sites: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="most_records goes with `held_out` above 0"):
        scouting(sites.shop.write(), PassiveRun, 150)
    sites.shop.run |= {"held_out": 0.2, "desensitize": {"leave_out": ["spend"]}}
    with pytest.raises(ConfigError, match="scouting looks at every column"):
        scout(sites.shop.write(), records=150, insecure=False, terminal=Terminal())


def test_what_helps_by_true_labels_is_not_told_of_labels_that_are_protected(sites: Any) -> None:
    sites.bank.run |= {"held_out": 0.2, "label_epsilon": 1.0}
    with pytest.raises(ConfigError, match=r"tell of true labels, which `label_epsilon` protects.*Nothing was sent"):
        scout(sites.bank.write(), records=150, insecure=False, terminal=Terminal())
