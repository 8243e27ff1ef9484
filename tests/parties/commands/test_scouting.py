"""`opboost scout`: two processes release a few records, measure the columns, and the full run pays for the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import yaml

from parties.jobs.train_vertical import Terminal, train_active, train_passive
from parties.reports.held_out_section import load_uplift
from parties.reports.ledger_statement import Statement, read_statement
from tests.support.processes import finish

N_RECORDS, SILENT = 100, Terminal()


def statement(site: Any) -> Statement:
    return read_statement(site.path / "run.yaml", None)


def charged(found: Statement) -> dict[str, int]:
    return {one.column: one.n_records for one in found.columns}


def test_only_scouted_records_pay_and_the_full_run_keeps_their_draws_and_leaves_columns_out(
    sites: Any, outcomes: Callable[..., dict[str, Any]]
) -> None:
    sites.bank.run["held_out"] = sites.shop.run["held_out"] = 0.25
    options = ("--records", str(N_RECORDS), "--format", "json")
    bank, shop = finish(sites.bank.start("scout", *options), sites.shop.start("scout", *options))
    assert (bank[0], shop[0]) == (0, 0), bank[2] + shop[2]
    found, theirs = json.loads(bank[1]), json.loads(shop[1])
    assert (found["records"], theirs["records"]) == (N_RECORDS, N_RECORDS)
    assert [use["columns"] for use in found["uses"]][:2] == [["column 0"], ["column 1"]]
    # A quarter of 400, within 5 standard deviations.
    assert abs((n_held_out := found["uplift"]["n_rows"]) - 100) < 45
    assert theirs["columns"] == {"column 0": "spend", "column 1": "visits"}
    assert theirs["uses"] == []
    scouted = statement(sites.shop)
    assert (charged(scouted), scouted.n_spared) == ({"spend": N_RECORDS, "visits": N_RECORDS}, 0)

    lines = yaml.safe_load(found["to_copy"]["shop"])["desensitize"]
    assert set(lines) == {"leave_out"}
    sites.shop.run["desensitize"]["leave_out"] = ["column 1"]
    paths = {"bank": sites.bank.write(), "shop": sites.shop.write()}
    done = outcomes(
        {
            "bank": lambda: train_active(paths["bank"], insecure=False, terminal=SILENT),
            "shop": lambda: train_passive(paths["shop"], insecure=False, terminal=SILENT),
        }
    )
    assert not [one for one in done.values() if isinstance(one, BaseException)], done
    full = statement(sites.shop)
    assert charged(full) == {"spend": 400 - n_held_out, "visits": N_RECORDS}
    assert full.record == scouted.record
    assert full.n_spared == 400 - n_held_out - N_RECORDS
    # The full run holds out what the scouting did.
    assert load_uplift(done["bank"]).n_held_out == n_held_out
