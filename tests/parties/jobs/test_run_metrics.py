"""Metrics of a job that is on, as Prometheus reads them."""

from __future__ import annotations

import re
import select
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from parties.config.party_run import MetricsSection
from parties.errors import ConfigError
from parties.jobs import run_metrics
from parties.jobs.life_cycle import Terminal
from parties.jobs.predict_vertical import predict_active
from parties.jobs.run_metrics import serving_metrics
from parties.jobs.train_vertical import train_active, train_passive
from tests.support.processes import finish
from tests.support.score_services import SILENT, WAIT_S, place, until


def samples(address: str) -> dict[str, float]:
    """Every sample by its name and labels; none while nobody answers."""
    try:
        text = httpx.get(f"http://{address}/metrics", timeout=5).text
    except httpx.TransportError:
        return {}
    return {name: float(value) for name, value in re.findall(r"^(opboost_\S+) (\S+)$", text, flags=re.MULTILINE)}


def test_a_service_counts_messages_records_bits_durations_and_errors_and_tells_the_budget(
    sites: Any, tmp_path: Path, outcomes: Callable[..., dict[str, Any]]
) -> None:
    at = {"bank": place(), "shop": place()}
    sites.shop.run |= {"metrics": {"listen": at["shop"]}, "ledger": {"budget": {"epsilon": 12, "per_record": 19}}}
    seen: dict[str, float] = {}

    def look(step: str, done: int, total: int) -> None:
        seen.update(samples(at["bank"]))

    sites.bank.run["metrics"] = {"listen": at["bank"]}
    paths = {site.party: site.write() for site in (sites.bank, sites.shop)}
    terminal = Terminal(progress=look)
    calls: dict[str, Callable[[], Any]] = {
        "bank": lambda: train_active(paths["bank"], insecure=False, terminal=terminal),
        "shop": lambda: train_passive(paths["shop"], insecure=False, terminal=SILENT),
    }
    found = outcomes(calls)
    assert not [one for one in found.values() if isinstance(one, BaseException)], found
    assert seen['opboost_messages_total{direction="received",kind="hello",peer="shop"}'] == 1
    assert samples(at["bank"]) == {}

    (tmp_path / "ids").write_text("k0001\nk0002\nk0003\n")
    service = sites.shop.start("party-b", "--serve")
    try:
        until(lambda: samples(at["shop"]).get('opboost_steps_total{event="serving"}'), service)
        given: Any = {"data": None, "ids": tmp_path / "ids", "out": tmp_path / "out.csv", "terminal": SILENT}
        predict_active(sites.bank.write(), mode="routed", insecure=False, **given)
        now = until(lambda: (one := samples(at["shop"])).get('opboost_steps_total{event="session"}') and one, service)
        assert [now[f"opboost_{name}_total"] for name in ("requests", "records", "answered", "refused")] == [1, 3, 3, 0]
        assert now["opboost_routed_bits_total"] % 3 == 0 < now["opboost_routed_bits_total"]
        assert now['opboost_answer_seconds_count{peer="bank"}'] == 1
        assert 0 < now['opboost_answer_seconds_sum{peer="bank"}'] < WAIT_S
        assert now['opboost_message_bytes_total{direction="sent",peer="bank"}'] > 0
        assert now["opboost_errors_total"] == 0
        # Per unit, 5 were spent on the one column and 10 on the other, which has fewer points to a unit.
        left = {name: value for name, value in now.items() if "budget_left" in name and 'kind="epsilon"' in name}
        by_column = {re.findall(r'column="(\w+)"', name)[0]: value for name, value in left.items()}
        assert by_column == pytest.approx({"spend": 7, "visits": 2})
        # And 3 on whether a cell is empty.
        assert now['opboost_budget_left{column="",kind="per_record"}'] == pytest.approx(1)
    finally:
        service.send_signal(15)
        assert finish(service, seconds=WAIT_S)[0][0] == 0


def test_connections_that_say_nothing_use_up_no_threads_and_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_metrics._Handler, "timeout", 0.2)
    address, before = place(), threading.active_count()
    host, port = address.split(":")
    with serving_metrics(address, list), ExitStack() as many:
        held = [many.enter_context(socket.create_connection((host, int(port)), 5)) for _ in range(40)]
        until(lambda: sum(not select.select([one], [], [], 0)[0] for one in held) <= run_metrics.MAX_READERS)
        assert threading.active_count() <= before + 1 + run_metrics.MAX_READERS
        # Those that have a place lose it, too.
        assert until(lambda: samples(address)) is not None


def test_metrics_are_for_this_machine_alone_and_their_port_must_be_free() -> None:
    with pytest.raises(ValidationError, match="must be on loopback"):
        MetricsSection(listen="0.0.0.0:9100")
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match="metrics cannot be served at 127"),
        serving_metrics(f"127.0.0.1:{taken.getsockname()[1]}", list),
    ):
        pass
