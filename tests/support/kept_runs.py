"""Runs of a bank and a shop whose ranks or model the bank keeps: finished ones, or up to the saved model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from parties.jobs.train_vertical import Terminal, train_active, train_passive
from tests.support.outcomes import outcomes_of
from tests.support.sites import Site, Sites


@pytest.fixture(scope="session")
def tuned_bank(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The bank's site after a run with records held out, in an order that only the bank and the shop know."""
    sites = Sites(tmp_path_factory.mktemp("tuning"))
    sites.bank.run["correct_noise"] = True
    for site in (sites.bank, sites.shop):
        site.run |= {"held_out": 0.1, "align": {"method": "psi"}}
    return train_bank(sites)


def train_bank(sites: Sites, *, model: Mapping[str, Any] | None = None) -> Site:
    """The bank's site after a run with the shop; `model` is added to the run file's."""
    sites.bank.run["model"] |= model or {}
    bank, shop = sites.bank.write(), sites.shop.write()
    found = outcomes_of(
        {
            "bank": lambda: train_active(bank, insecure=False, terminal=Terminal()),
            "shop": lambda: train_passive(shop, insecure=False, terminal=Terminal()),
        }
    )
    assert not [one for one in found.values() if isinstance(one, Exception)]
    return sites.bank


@contextmanager
def before_concluding(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A block in which a bank stops as soon as its model is saved, before anybody could confirm a share of it."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("parties.vertical.party_a._conclude", stop)
        yield


@pytest.fixture(scope="session")
def run_file(tuned_bank: Any) -> Path:
    return Path(tuned_bank.path / "run.yaml")
