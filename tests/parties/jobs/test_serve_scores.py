"""`opboost serve` over HTTP: scores, statuses, refusals, metrics and the page of the interface."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.support.processes import Command
from tests.support.score_services import TOKEN, WAIT_S, Service, Trained, answering, place, serving, trained

__all__ = ["trained"]


@pytest.fixture(scope="module")
def both(trained: Trained) -> Iterator[tuple[Service, Command]]:
    """Both services, connected."""
    run_file = trained.serving_run("spring", listen=place(), max_records=500)
    with answering(trained, "spring") as shop, serving(run_file) as service:
        service.wait_for("/ready", 200, shop)
        yield service, shop


def test_scores_by_id_and_by_columns_are_those_of_predict(trained: Trained, both: tuple[Service, Command]) -> None:
    service, _ = both
    expected = trained.expected["spring"]
    ids = expected.index.tolist()
    answer = service.score(*ids, reasons=2)
    assert answer.status_code == 200, answer.text
    by_id = answer.json()
    assert by_id["model"] == "spring"
    assert [one["id"] for one in by_id["scores"]] == ids
    assert [one["prediction"] for one in by_id["scores"]] == expected["prediction"].tolist()
    reasons = [[one for one in row if one] for row in expected[["reason_1", "reason_2"]].to_numpy().tolist()]
    assert [one["reasons"] for one in by_id["scores"]] == reasons
    own = trained.bank.table.set_index("id")["age"]
    by_columns = service.score(*({"id": one, "columns": {"age": own[one]}} for one in ids)).json()
    assert [one["prediction"] for one in by_columns["scores"]] == expected["prediction"].tolist()
    assert {one["status"] for one in by_columns["scores"]} == {"ok"}


def test_every_record_has_a_status(both: tuple[Service, Command]) -> None:
    service, _ = both
    found = service.score("nobody", "k0001", {"id": "nobody", "columns": {"age": 30}}).json()["scores"]
    assert [one["status"] for one in found] == ["missing_active_columns", "ok", "missing_passive_columns"]
    assert [one["prediction"] is None for one in found] == [True, False, True]
    assert service.score("nobody", reasons=1).json()["scores"] == [
        {"id": "nobody", "status": "missing_active_columns", "prediction": None}
    ]


def test_requests_at_the_same_time_get_their_own_scores(trained: Trained, both: tuple[Service, Command]) -> None:
    service, _ = both
    expected = trained.expected["spring"]["prediction"]
    wrong: list[object] = []

    def ask(first: int) -> None:
        with httpx.Client(base_url=service.url, headers=service.client.headers, timeout=WAIT_S) as client:
            for i in range(first, first + 40):
                ids = expected.index[i % 390 : i % 390 + 1 + i % 7].tolist()
                answer = client.post("/v1/scores", json={"records": [{"id": one} for one in ids]}).json()
                if [one["prediction"] for one in answer["scores"]] != expected[ids].tolist():
                    wrong.append(answer)

    threads = [threading.Thread(target=ask, args=(37 * k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert wrong == []


def test_what_does_not_fit_is_refused_with_a_sentence(both: tuple[Service, Command]) -> None:
    service, _ = both
    kind, surrogate = {"Content-Type": "application/json"}, b'{"records": [{"id": "\\ud800"}]}'
    refused = [
        (service.score(*["k0001"] * 501), 413, "501 records; at most 500 are scored at once"),
        (service.score({"id": "k0001", "columns": {}}), 422, "`columns` lacks age. Nothing was asked"),
        (service.score(), 422, "records: List should have at least 1 item after validation, not 0. Nothing was asked"),
        (service.client.post("/v1/scores", content=b"{", headers=kind), 400, "the body is no JSON. Nothing was asked"),
        (service.client.post("/v1/scores", content=surrogate, headers=kind), 422, "Nothing was asked"),
    ]
    assert [(answer.status_code, text in answer.json()["detail"]) for answer, _, text in refused] == [
        (status, True) for _, status, _ in refused
    ]
    bare = httpx.post(f"{service.url}/v1/scores", json={"records": [{"id": "k0001"}]}, timeout=WAIT_S)
    assert (bare.status_code, bare.json()) == (401, {"detail": "a bearer token is needed"})
    sizes = [b"[" * 4_000_000, b"[" * 4_000_001]
    huge = [service.client.post("/v1/scores", content=one, headers=kind).status_code for one in sizes]
    assert huge == [400, 413]
    assert service.score("k0001").status_code == 200


def test_the_page_of_the_interface_is_complete_in_itself(both: tuple[Service, Command]) -> None:
    service, _ = both
    paths = service.get("/openapi.json")[1]["paths"]
    assert set(paths) == {"/v1/scores", "/v1/models", "/health", "/ready", "/metrics"}
    assert {"200", "401", "413", "422", "503", "504"} <= set(paths["/v1/scores"]["post"]["responses"])
    page = httpx.get(f"{service.url}/docs", timeout=WAIT_S)
    assert page.status_code == 200
    assert "https://" not in page.text.replace("https://fastapi", "")
    script = httpx.get(f"{service.url}/static-offline-docs/swagger-ui-bundle.js", timeout=WAIT_S)
    assert script.status_code == 200


def test_metrics_count_requests_and_records_and_neither_they_nor_logs_hold_ids_or_tokens(
    trained: Trained, both: tuple[Service, Command]
) -> None:
    service, _ = both
    service.score("k0001", "nobody")
    found = service.get("/metrics")[1]
    assert 'opboost_ready{model="spring"} 1.0' in found
    assert 'opboost_http_requests_total{caller="scoring",code="200"}' in found
    assert 'opboost_scored_records_total{model="spring",status="missing_active_columns"}' in found
    assert 'opboost_batch_records_count{model="spring"}' in found
    assert "process_resident_memory_bytes" in found
    logs = [path.read_text() for path in trained.bank.path.rglob("log.*")]
    assert len(logs) == 4
    for text in (found, *logs):
        assert TOKEN not in text
        assert "k0001" not in text
        assert "nobody" not in text
