"""`opboost serve` when a passive party hangs or leaves, at its stop, when models change, and when it cannot begin."""

from __future__ import annotations

import signal
import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml

from parties.service.connections import MAX_UNPROVEN
from tests.support.processes import Command, finish
from tests.support.score_services import (
    TOKEN,
    WAIT_S,
    Service,
    Trained,
    answering,
    certificate,
    place,
    serving,
    trained,
    until,
)

__all__ = ["trained"]


def test_while_the_passive_party_hangs_or_is_away_callers_are_told_and_afterwards_served(trained: Trained) -> None:
    run_file = trained.serving_run("spring", listen=place(), timeout=0.4)
    with serving(run_file) as service:
        service.wait_for("/health", 200)
        until(lambda: service.get("/ready") == (503, {"detail": "records cannot be scored now; /v1/models says why"}))
        until(lambda: service.get("/v1/models")[1]["answering"]["away"] == "waiting for shop")
        away = service.score("k0001")
        assert (away.status_code, away.headers["retry-after"]) == (503, "1")
        assert away.json() == {"detail": "waiting for shop. No score was computed"}
        with answering(trained, "spring") as shop:
            service.wait_for("/ready", 200, shop)
            shop.send_signal(signal.SIGSTOP)
            assert service.score("k0001").status_code == 504
            service.wait_for("/ready", 503)
            assert "has not answered" in service.get("/v1/models")[1]["answering"]["away"]
            assert service.score("k0001").status_code == 503
            shop.send_signal(signal.SIGCONT)
            service.wait_for("/ready", 200, shop)
            assert service.score("k0001").status_code == 200
        assert service.wait_for("/ready", 503)["detail"]
        assert service.get("/health")[0] == 200
        with answering(trained, "spring") as shop:
            service.wait_for("/ready", 200, shop)
            expected = trained.expected["spring"].loc["k0001", "prediction"]
            assert service.score("k0001").json()["scores"][0]["prediction"] == expected


def test_a_service_that_is_told_to_stop_answers_the_request_at_hand(trained: Trained) -> None:
    run_file = trained.serving_run("spring", listen=place(), timeout=20)
    with answering(trained, "spring") as shop, serving(run_file) as service:
        service.wait_for("/ready", 200, shop)
        shop.send_signal(signal.SIGSTOP)
        found: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: found.append(service.score("k0001")))
        thread.start()
        time.sleep(0.3)
        service.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert (service.process.poll(), found) == (None, [])
        shop.send_signal(signal.SIGCONT)
        thread.join(WAIT_S)
        assert found[0].status_code == 200
        ((code, out, error),) = finish(service.process, seconds=WAIT_S)
        assert (code, out, error) == (0, "", "")
        shop.send_signal(signal.SIGTERM)
        assert finish(shop, seconds=WAIT_S)[0][0] == 0


def test_a_request_whose_caller_has_left_is_not_asked_for(trained: Trained) -> None:
    run_file = trained.serving_run("spring", listen=place(), timeout=20)
    with answering(trained, "spring") as shop, serving(run_file) as service:
        service.wait_for("/ready", 200, shop)
        shop.send_signal(signal.SIGSTOP)
        with httpx.Client(base_url=service.url, headers=service.client.headers) as client:
            body = {"records": [{"id": "k0001"}, {"id": "k0002"}]}
            for _ in range(3):
                with pytest.raises(httpx.ReadTimeout):
                    client.post("/v1/scores", json=body, timeout=0.3)
        until(lambda: 'requests_total{caller="scoring",code="499"} 3.0' in service.get("/metrics")[1])
        shop.send_signal(signal.SIGCONT)
        assert service.score("k0001").status_code == 200
        # The first had been asked for when its caller left.
        assert 'opboost_batch_records_sum{model="spring"} 3.0' in service.get("/metrics")[1]


@pytest.mark.parametrize("is_in_pieces", [False, True])
def test_of_a_closed_connection_all_requests_are_given_up(trained: Trained, is_in_pieces: bool) -> None:
    """Also the first of several that came one behind the other, whether those behind it came at once or later."""
    run_file = trained.serving_run("spring", listen=place(), timeout=20)
    log = trained.bank.path / "runs" / "spring" / "log.txt"
    with answering(trained, "spring") as shop, serving(run_file) as service:
        service.wait_for("/ready", 200, shop)
        n_before = log.read_text().count("defect")
        shop.send_signal(signal.SIGSTOP)
        with pytest.raises(httpx.ReadTimeout):
            service.client.post("/v1/scores", json={"records": [{"id": "k0001"}]}, timeout=0.3)
        request = service.client.build_request("POST", "/v1/scores", json={"records": [{"id": "k0002"}]})
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        sent = f"POST /v1/scores HTTP/1.1\r\n{head}\r\n".encode() + request.read()
        with socket.create_connection((request.url.host, request.url.port)) as caller:
            for piece in [sent] * 3 if is_in_pieces else [sent * 3]:
                caller.sendall(piece)
                time.sleep(0.2)
        until(lambda: 'requests_total{caller="scoring",code="499"} 2.0' in service.get("/metrics")[1])
        shop.send_signal(signal.SIGCONT)
        assert service.score("k0003").status_code == 200
        # The first caller's had been asked for when it left.
        assert 'opboost_batch_records_sum{model="spring"} 2.0' in service.get("/metrics")[1]
        assert log.read_text().count("defect") == n_before


def test_a_connection_is_a_strangers_once_its_token_is_gone(trained: Trained) -> None:
    """It stood among the callers' for as long as it was there, however many strangers came."""
    run_file = trained.serving_run("spring", listen=place(), timeout=20)
    tokens, log = trained.bank.path / "tokens.txt", trained.bank.path / "runs" / "spring" / "log.txt"
    before, gone = tokens.read_text(), "b" * 40
    body = b'{"records": [{"id": "k0001"}]}'
    head = (
        f"POST /v1/scores HTTP/1.1\r\nAuthorization: Bearer {gone}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    tokens.write_text(f"{before}leaving {gone}\n")
    with answering(trained, "spring") as shop, serving(run_file) as service, ExitStack() as stack:
        service.wait_for("/ready", 200, shop)
        shop.send_signal(signal.SIGSTOP)
        host, _, port = service.url.removeprefix("http://").rpartition(":")
        caller = stack.enter_context(socket.create_connection((host, int(port)), 5))
        caller.sendall(head.encode() + body)
        time.sleep(0.3)
        n_before = log.read_text().count("were read again")
        tokens.write_text(before)
        service.process.send_signal(signal.SIGHUP)
        until(lambda: log.read_text().count("were read again") > n_before)
        for _ in range(MAX_UNPROVEN):
            stack.enter_context(socket.create_connection((host, int(port)), 5))
        with suppress(ConnectionResetError):
            assert caller.recv(1) == b""
        assert service.get("/health")[0] == 200


@pytest.mark.parametrize(
    ("after", "is_changing"), [("spring", False), ("summer", False), ("summer", True)], ids=["same", "new", "asked"]
)
def test_a_token_is_taken_away_at_once_though_the_passive_party_is_away(
    trained: Trained, after: str, is_changing: bool
) -> None:
    """Also if the model of the run file is to change, or was told to, which waits for its passive party."""
    where = place()
    run_file = trained.serving_run("spring", listen=where)
    tokens, gone = trained.bank.path / "tokens.txt", {"Authorization": f"Bearer {'c' * 40}"}
    before = tokens.read_text()
    tokens.write_text(f"{before}leaving {'c' * 40}\n")
    with serving(run_file) as service:
        service.wait_for("/health", 200)
        assert httpx.get(f"{service.url}/v1/models", headers=gone, timeout=5).status_code == 200
        if after != "spring":
            run_file.write_text(trained.serving_run(after, listen=where).read_text())
        if is_changing:
            service.process.send_signal(signal.SIGHUP)
            # It waits for the shop of that model.
            host, _, port = yaml.safe_load(run_file.read_text())["listen"].removeprefix("tcp://").rpartition(":")
            with socket.socket() as caller:
                until(lambda: caller.connect_ex((host, int(port))) == 0)
        tokens.write_text(before)
        service.process.send_signal(signal.SIGHUP)
        until(lambda: httpx.get(f"{service.url}/v1/models", headers=gone, timeout=5).status_code == 401)
        assert service.get("/v1/models")[1]["answering"]["away"] == "waiting for shop"


def test_a_head_has_as_long_as_a_body_to_come(trained: Trained) -> None:
    with serving(trained.serving_run("spring", listen=place(), timeout=0.4)) as service:
        service.wait_for("/health", 200)
        host, _, port = service.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), 5) as caller, suppress(ConnectionResetError):
            caller.sendall(f"GET /v1/models HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            assert caller.recv(4096).startswith(b"HTTP/1.1 200 ")
            caller.sendall(b"G")
            # The rest of the answer, if it came in two pieces, and then the end.
            while caller.recv(4096):
                pass
            assert caller.recv(1) == b""


def test_models_change_under_load_and_a_shadow_is_compared_and_not_answered(trained: Trained) -> None:
    where = place()
    run_file = trained.serving_run("spring", listen=where, shadow="summer.yaml")
    expected = {run_id: table["prediction"] for run_id, table in trained.expected.items()}
    difference = (expected["spring"] - expected["summer"]).abs()
    with answering(trained, "spring") as one, answering(trained, "summer") as two, serving(run_file) as service:
        service.wait_for("/ready", 200, one, two)
        until(lambda: service.get("/models") and service.get("/v1/models")[1]["shadow"]["away"] is None)
        assert {service.score(record_id).json()["model"] for record_id in difference.index[:20]} == {"spring"}
        total = 'opboost_shadow_difference_sum{model="summer"} '
        text = until(lambda: 'difference_count{model="summer"} 20.0' in (found := service.get("/metrics")[1]) and found)
        assert np.isclose(float(text.split(total)[1].split("\n")[0]), difference[:20].sum())

        answers: list[dict[str, Any]] = []
        is_over = threading.Event()

        def ask() -> None:
            with httpx.Client(base_url=service.url, headers=service.client.headers, timeout=WAIT_S) as client:
                while not is_over.is_set():
                    answers.append(client.post("/v1/scores", json={"records": [{"id": "k0007"}]}).json())

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: answers)
            run_file.write_text("role: active\n")
            service.process.send_signal(signal.SIGHUP)
            until(lambda: "is not used" in (trained.bank.path / "runs/spring/log.txt").read_text())
            assert service.score("k0001").json()["model"] == "spring"
            trained.serving_run("summer", listen=where)
            service.process.send_signal(signal.SIGHUP)
            until(lambda: service.get("/v1/models")[1] == {"answering": {"model": "summer", "away": None}})
            until(lambda: bool(answers) and answers[-1].get("model") == "summer")
        finally:
            is_over.set()
            for thread in threads:
                thread.join(WAIT_S)
        assert [answer for answer in answers if "detail" in answer] == []
        assert all(answer["scores"][0]["prediction"] == expected[answer["model"]]["k0007"] for answer in answers)
        assert {answer["model"] for answer in answers} == {"spring", "summer"}
        # The model that left has said goodbye to its passive party.
        log = trained.shop.path / "runs" / "spring" / "log.txt"
        until(lambda: log.read_text().rstrip().endswith("; done"))


def test_with_a_certificate_the_service_speaks_tls_alone(trained: Trained) -> None:
    trust = certificate(trained.bank.path)
    run_file = trained.serving_run("spring", listen=place(), certificate="cert.pem", private_key="key.pem")
    with answering(trained, "spring") as shop, serving(run_file, verify=trust) as service:
        service.wait_for("/ready", 200, shop)
        assert service.score("k0001").status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(service.url.replace("https", "http") + "/health", timeout=5)


def test_a_certificate_is_taken_over_with_everything_else_or_not_at_all(trained: Trained, tmp_path: Path) -> None:
    """Where its key is another one's, or the model's passive party does not come, callers go on as before."""
    trust, new = certificate(trained.bank.path), certificate(tmp_path)
    log, where = trained.bank.path / "runs" / "spring" / "log.txt", place()
    tls: dict[str, Any] = {"listen": where, "certificate": "cert.pem", "private_key": "key.pem"}
    run_file = trained.serving_run("spring", **tls)

    def is_read_again(service: Service, words: str) -> None:
        n_before = log.read_text().count(words)
        service.process.send_signal(signal.SIGHUP)
        until(lambda: log.read_text().count(words) > n_before)

    def is_trusted(by: ssl.SSLContext) -> bool:
        try:
            return httpx.get(f"https://{where}/health", verify=by, timeout=5).status_code == 200
        except httpx.ConnectError:
            return False

    with answering(trained, "spring") as shop, serving(run_file, verify=trust) as service:
        service.wait_for("/ready", 200, shop)
        (trained.bank.path / "cert.pem").write_bytes((tmp_path / "cert.pem").read_bytes())
        is_read_again(service, "is not used: ")
        assert (is_trusted(trust), is_trusted(new)) == (True, False)
        (trained.bank.path / "key.pem").write_bytes((tmp_path / "key.pem").read_bytes())
        summer = yaml.safe_load(trained.serving_run("summer", **tls).read_text())
        run_file.write_text(yaml.safe_dump({**summer, "wait": 0.2}))
        is_read_again(service, "is not used: ")
        assert (is_trusted(trust), is_trusted(new)) == (True, False)
        trained.serving_run("spring", **tls)
        is_read_again(service, "were read again")
        assert (is_trusted(trust), is_trusted(new)) == (False, True)


def test_another_model_in_the_folder_of_one_that_is_served_is_told_and_not_taken_for_it(trained: Trained) -> None:
    """The log said that all was read again, and the old model answered, on own columns by the new one's schema."""
    run_file = trained.serving_run("spring", listen=place())
    spring, summer = (trained.bank.path / "runs" / name for name in ("spring", "summer"))
    log, before = spring / "log.txt", {name: (spring / name).read_bytes() for name in ("model.json", "meta.json")}
    with answering(trained, "spring") as shop, serving(run_file) as service:
        service.wait_for("/ready", 200, shop)
        try:
            (spring / "model.json").write_bytes((summer / "model.json").read_bytes())
            service.process.send_signal(signal.SIGHUP)
            until(lambda: "spring are not as at the end of the run" in log.read_text())
            (spring / "meta.json").write_bytes((summer / "meta.json").read_bytes())
            service.process.send_signal(signal.SIGHUP)
            until(lambda: "spring holds another model than the one of this run that is served" in log.read_text())
        finally:
            for name, content in before.items():
                (spring / name).write_bytes(content)
        assert (
            service.score("k0007").json()["scores"][0]["prediction"]
            == trained.expected["spring"]["prediction"]["k0007"]
        )
        n_before = log.read_text().count("were read again")
        service.process.send_signal(signal.SIGHUP)
        until(lambda: log.read_text().count("were read again") > n_before)


@pytest.mark.parametrize(
    ("http", "sentence"),
    [
        ({"listen": "0.0.0.0:9000"}, "0.0.0.0:9000 is not on loopback, where certificate and private_key are needed"),
        ({"listen": "127.0.0.1"}, "http.listen: must be host:port"),
        ({"listen": "127.0.0.1:9000", "certificate": "c.pem"}, "give both certificate and private_key"),
        ({"listen": "127.0.0.1:9000", "tokens": "absent"}, "absent cannot be read as a file of tokens: No such file"),
        (
            {"listen": "127.0.0.1:9000", "certificate": "tokens.txt", "private_key": "tokens.txt"},
            "are no certificate and its key",
        ),
        ({"listen": "127.0.0.1:9000", "shadow": "spring.yaml"}, "the shadow need another `listen`"),
    ],
)
def test_a_service_that_cannot_begin_says_why(trained: Trained, http: dict[str, Any], sentence: str) -> None:
    ((code, _, error),) = finish(Command("serve", str(trained.serving_run("spring", **http))), seconds=WAIT_S)
    assert code == 1
    assert sentence in error.replace("\n", " ")
    assert "Traceback" not in error


def test_a_taken_port_and_a_run_file_without_the_section_are_refused(trained: Trained) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run_file = trained.serving_run("spring", listen=f"127.0.0.1:{taken.getsockname()[1]}")
        ((code, _, error),) = finish(Command("serve", str(run_file)), seconds=WAIT_S)
    assert (code, f"cannot listen on 127.0.0.1:{taken.getsockname}"[:24] in error) == (1, True)
    ((code, _, error),) = finish(Command("serve", str(trained.bank.path / "spring.yaml")), seconds=WAIT_S)
    assert code == 1
    assert "has no section `http`" in error.replace("\n", " ")
