"""A bank and a shop whose tables are partitions: training and prediction by both at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parties.jobs.answer_vertical import serve_passive
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import Terminal, train_active, train_passive
from tests.support.parquet_folders import in_a_folder

Outcomes = Callable[..., dict[str, Any]]
SILENT = Terminal()
MODEL = {"n_estimators": 30, "max_depth": 3, "learning_rate": 0.2, "seed": 3}


def divide(site: Any, n_parts: int, folder: str = "parts") -> None:
    in_a_folder(site.table.sort_values("id"), site.path / folder, n_parts)


def train_both(parties: Any, outcomes: Outcomes) -> dict[str, Any]:
    bank, shop = parties.bank.write(), parties.shop.write()
    calls = {
        "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
        "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
    }
    found = outcomes(calls)
    return {name: error for name, error in found.items() if isinstance(error, BaseException)}


def predict_both(parties: Any, outcomes: Outcomes, **changes: Any) -> dict[str, Any]:
    bank, shop = parties.bank.write(), parties.shop.write()
    asked: dict[str, Any] = {"data": None, "ids": None, "mode": "routed", "out": None} | changes
    return outcomes(
        {
            "bank": lambda: predict_active(bank, insecure=False, terminal=SILENT, **asked),
            "shop": lambda: serve_passive(shop, data=asked["data"], insecure=False, terminal=SILENT),
        }
    )
