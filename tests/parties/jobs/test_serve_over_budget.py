"""`opboost serve` with desensitized records of which some exceed the budget of the passive party."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.released_cells import lines
from tests.support.score_services import TOKEN, WAIT_S, Service, Trained, answering, place, serving

OTHER_TOKEN = TOKEN[::-1]
N_HONEST, LOAD_S = 16, 5.0


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, make_sites: Callable[[Path], Any], outcomes: Callable[..., dict[str, Any]]
) -> Trained:
    """A shop whose budget allows no second release of a record, of which two have changed."""
    sites = make_sites(tmp_path_factory.mktemp("sites"))
    sites.shop.run |= {"ledger": {"budget": {"columns": {"spend": {"epsilon": 6}}}}, "changed_values": "redraw"}
    found = Trained(sites, outcomes)
    table = found.shop.table
    table["spend"] = table["spend"].where(~table["id"].isin(["k0007", "k0008"]), 100 - table["spend"])
    table.to_csv(found.shop.path / "data.csv", index=False)
    tokens = found.bank.path / "tokens.txt"
    tokens.touch(0o600)
    tokens.write_text(f"scoring {TOKEN}\nother {OTHER_TOKEN}\n")
    return found


def charges(ledger: Path) -> list[dict[str, Any]]:
    return [line for line in lines(ledger) if line["kind"] == "charge"]


def answers(service: Service, token: str, ids: list[str], until: float, found: list[tuple[int, str]]) -> None:
    """Ask for records as fast as answered, and note the code and status of each answer."""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=WAIT_S) as client:
        while time.monotonic() < until:
            answer = client.post("/v1/scores", json={"records": [{"id": one} for one in ids]})
            found.append((answer.status_code, answer.json()["scores"][0]["status"] if answer.is_success else ""))


def test_a_caller_over_budget_keeps_no_answer_from_the_others_and_costs_nothing(trained: Trained) -> None:
    """Answers about several records take a step of 0.2 s and more, and a refused message held all of its requests."""
    run_file = trained.serving_run("spring", listen=place(), mode="desensitized", timeout=2)
    ledger = trained.shop.path / "runs" / "ledger.sqlite"
    with answering(trained, "spring") as shop, serving(run_file) as service:
        service.wait_for("/ready", 200, shop)
        before, until = charges(ledger), time.monotonic() + LOAD_S
        honest, refused = list[tuple[int, str]](), list[tuple[int, str]]()
        loads = [(TOKEN, [f"k{10 + 2 * i:04}", f"k{11 + 2 * i:04}"], honest) for i in range(N_HONEST)]
        loads.append((OTHER_TOKEN, ["k0007", "k0008"], refused))
        threads = [
            threading.Thread(target=answers, args=(service, token, ids, until, found)) for token, ids, found in loads
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert Counter(honest).keys() == {(200, "ok")}
        assert Counter(refused).keys() == {(200, "refused_budget")}
        assert len(honest) > 3 * N_HONEST
        assert charges(ledger) == before != []
