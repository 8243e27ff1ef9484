"""What strangers and callers may hold of the HTTP service over real connections: so many of them, bytes and seconds."""

from __future__ import annotations

import asyncio
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from parties.service import connections
from parties.service.access import Gate, Tokens, _closing
from parties.service.connections import MAX_HEADERS, EncryptedListener, connection_settings
from parties.service.metrics import ServiceMetrics
from tests.support.addresses import free_addresses
from tests.support.score_services import certificate

TOKEN, OTHER = "a" * 40, "b" * 40
BEARER = {"Authorization": f"Bearer {TOKEN}"}
SETTINGS = connection_settings(1)


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers every request, one to `/slow` after a second."""
    if scope["type"] == "lifespan":
        return
    await asyncio.sleep(scope["path"] == "/slow")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[tuple[str, int]]:
    tokens = folder / "tokens.txt"
    tokens.touch(0o600)
    tokens.write_text(f"scoring {TOKEN}\nnightly {OTHER}\n")
    host, port = free_addresses(1)[0].removeprefix("tcp://").split(":")
    gate = Gate(application, tokens=Tokens(tokens), body_s=1, metrics=ServiceMetrics())
    server = uvicorn.Server(
        uvicorn.Config(
            gate, host=host, port=int(port), log_config=None, lifespan="off", limit_concurrency=20, **settings
        )
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield host, int(port)
    finally:
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(connections, "MAX_UNPROVEN", 10)
    with running(tmp_path, **SETTINGS) as place:
        yield place


def answer_among_strangers(place: tuple[str, int]) -> int:
    """How a caller is answered while more strangers than all connections hold half of a request."""
    with ExitStack() as stack:
        for _ in range(25):
            stranger = stack.enter_context(socket.create_connection(place, 5))
            stranger.sendall(b"POST /v1/scores HTTP/1.1\r\nHost: x\r\n")
        time.sleep(0.2)
        with httpx.Client(base_url="http://{}:{}".format(*place), headers=BEARER, timeout=5) as client:
            return client.get("/v1/models").status_code


def test_strangers_who_say_nothing_do_not_keep_callers_out(service: tuple[str, int]) -> None:
    assert answer_among_strangers(service) == 200


def test_without_that_bound_they_do(tmp_path: Path) -> None:
    with running(tmp_path, http="httptools") as place:
        assert answer_among_strangers(place) == 503


def test_a_caller_that_proved_its_token_stays_connected_whoever_comes(service: tuple[str, int]) -> None:
    with (
        httpx.Client(base_url="http://{}:{}".format(*service), headers=BEARER, timeout=5) as client,
        ExitStack() as many,
    ):
        assert client.get("/v1/models").status_code == 200
        for _ in range(15):
            many.enter_context(socket.create_connection(service, 5))
        time.sleep(0.2)
        port = client._transport._pool.connections[0]._connection._network_stream.get_extra_info("client_addr")[1]
        assert client.get("/v1/models").status_code == 200
        after = client._transport._pool.connections[0]._connection._network_stream.get_extra_info("client_addr")[1]
        assert port == after


REQUEST = f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
CHUNKED = REQUEST.replace(b"GET", b"POST").replace(b"Host: x", b"Transfer-Encoding: chunked") + b"0\r\n"


def sent_of_a_head(place: tuple[str, int], begun: bytes = b"GET /") -> int:
    """Bytes without an end that the service takes of a head, or of what was begun, 20 MB at most."""
    n_bytes = 0
    with socket.create_connection(place, 2) as stranger:
        stranger.sendall(begun)
        try:
            while n_bytes < 20_000_000:
                n_bytes += stranger.send(b"x" * 50_000)
        except OSError:
            pass
    return n_bytes


@pytest.mark.parametrize("begun", [b"GET /", CHUNKED + b"a: ", CHUNKED[:-2] + b";a="])
def test_a_head_a_trailer_or_an_extension_without_an_end_is_cut_off(service: tuple[str, int], begun: bytes) -> None:
    assert sent_of_a_head(service, begun) < 10_000_000


def test_without_that_bound_it_is_kept(tmp_path: Path) -> None:
    with running(tmp_path, http="httptools") as place:
        assert sent_of_a_head(place) >= 20_000_000


def statuses(place: tuple[str, int], sent: bytes) -> list[bytes]:
    """Status codes of all answers over one connection, until it is shut or silent."""
    answer = b""
    with socket.create_connection(place, 1) as caller, suppress(OSError):
        caller.sendall(sent)
        while found := caller.recv(65536):
            answer += found
    return re.findall(rb"HTTP/1.1 (\d+) ", answer)


def test_a_few_pipelined_requests_are_answered(service: tuple[str, int]) -> None:
    assert statuses(service, REQUEST * 10) == [b"200"] * 10


def test_many_pipelined_requests_are_refused_before_they_take_memory(service: tuple[str, int]) -> None:
    """Each takes kilobytes until those before are answered, also of a stranger who has one answer."""
    assert statuses(service, REQUEST * 1000) in ([b"400"], [])


def test_without_that_bound_all_of_them_are_kept(tmp_path: Path) -> None:
    with running(tmp_path, http="httptools") as place:
        assert statuses(place, REQUEST * 1000) == [b"200"] * 1000


@pytest.mark.parametrize(("n_headers", "expected"), [(98, [b"200"]), (MAX_HEADERS, [b"400"]), (50_000, [b"400"])])
@pytest.mark.parametrize("sent", [REQUEST, CHUNKED + b"\r\n"])
def test_a_request_has_a_bounded_number_of_headers_and_trailers(
    service: tuple[str, int], sent: bytes, n_headers: int, expected: list[bytes]
) -> None:
    found = statuses(service, sent[:-2] + b"a:b\r\n" * n_headers + b"\r\n")
    # Of an answer that was being sent nothing need be left where the connection is shut with bytes unread.
    assert found == expected or (expected == [b"400"] and found == [])


def test_without_that_bound_all_headers_are_kept(tmp_path: Path) -> None:
    with running(tmp_path, http="httptools") as place:
        assert statuses(place, REQUEST[:-2] + b"a:b\r\n" * 50_000 + b"\r\n") == [b"200"]


def test_a_token_behind_the_body_is_none(service: tuple[str, int]) -> None:
    bearer = f"Authorization: Bearer {TOKEN}\r\n".encode()
    assert statuses(service, CHUNKED.replace(bearer, b"") + bearer + b"\r\n") == [b"401"]


UNREAD = REQUEST.replace(b"Host: x", b"Content-Length: 1000000")


def is_shut_after(place: tuple[str, int], asked: bytes, then: bytes) -> bool:
    """Whether a caller's connection is shut within two and a half seconds where so much came after an answer."""
    with socket.create_connection(place, 2.5) as caller:
        caller.sendall(asked)
        assert caller.recv(4096).startswith(b"HTTP/1.1 200 ")
        caller.sendall(then)
        with suppress(TimeoutError):
            return caller.recv(1) == b""
        return False


@pytest.mark.parametrize(("asked", "then"), [(REQUEST, b"G"), (REQUEST, b"\r\n"), (UNREAD, b"x")])
def test_a_connection_over_which_no_whole_head_comes_is_shut_in_time(
    service: tuple[str, int], asked: bytes, then: bytes
) -> None:
    """Also one that was proven, and one over which an empty line comes, or a body that was answered before it came."""
    with suppress(ConnectionResetError):
        assert is_shut_after(service, asked, then)


def test_without_that_bound_it_stands_for_ever(tmp_path: Path) -> None:
    with running(tmp_path, http="httptools", timeout_keep_alive=1) as place:
        assert not is_shut_after(place, REQUEST, b"G")


def connected(stack: ExitStack, place: tuple[str, int], n: int, request: bytes) -> list[socket.socket]:
    """So many connections over each of which a request was sent."""
    found = [stack.enter_context(socket.create_connection(place, 5)) for _ in range(n)]
    for one in found:
        one.sendall(request)
    return found


def test_of_a_callers_many_connections_the_oldest_idle_ones_are_shut_and_others_are_served(
    service: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_OF_CALLER", 4)
    slow = REQUEST.replace(b"/v1/models", b"/slow")
    with ExitStack() as stack:
        at_work = connected(stack, service, 1, slow)
        time.sleep(0.2)
        # More than the service's own bound.
        for one in (many := [connected(stack, service, 1, REQUEST)[0] for _ in range(30)]):
            one.recv(4096)
        assert [one in select.select(many, [], [], 0)[0] for one in many] == [True] * 27 + [False] * 3
        assert at_work[0].recv(4096).startswith(b"HTTP/1.1 200 ")
        url = "http://{}:{}".format(*service)
        assert httpx.get(f"{url}/health").status_code == 200
        assert httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {OTHER}"}).status_code == 200


def test_where_requests_are_at_work_over_all_of_a_callers_connections_more_are_refused(
    service: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they come at the same moment."""
    monkeypatch.setattr(connections, "MAX_OF_CALLER", 4)
    slow = REQUEST.replace(b"/v1/models", b"/slow")
    with ExitStack() as stack:
        found = [one.recv(4096) for one in connected(stack, service, 9, slow)]
    assert sorted(one[9:12] for one in found) == [b"200"] * 4 + [b"503"] * 5
    assert all(b"retry-after" in one for one in found if one[9:12] == b"503")


@pytest.mark.parametrize("path", ["/health", "/v1/scores"])
def test_who_has_no_token_has_one_answer_a_connection(service: tuple[str, int], path: str) -> None:
    """Its body could come for ever."""
    with socket.create_connection(service, 5) as stranger:
        stranger.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx".encode())
        answer = b""
        while found := stranger.recv(4096):
            answer += found
    assert b"connection: close" in answer.lower()


def test_a_large_body_is_no_head(service: tuple[str, int]) -> None:
    with httpx.Client(base_url="http://{}:{}".format(*service), headers=BEARER, timeout=5) as client:
        for _ in range(3):
            assert client.post("/v1/scores", content=b"x" * 3_000_000).status_code == 200


UPGRADE = (
    b"GET /v1/scores HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_nobody_gets_past_the_check_of_tokens_by_another_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library for WebSockets may be installed beside this program; the server would hand connections to it."""

    class Other(asyncio.Protocol):
        def __init__(self, **_: Any) -> None:
            raise AssertionError("a stranger speaks another protocol")

    monkeypatch.setattr("uvicorn.protocols.websockets.auto.AutoWebSocketsProtocol", Other)
    with running(tmp_path, **SETTINGS) as place, socket.create_connection(place, 5) as stranger:
        stranger.sendall(UPGRADE)
        assert stranger.recv(4096).startswith(b"HTTP/1.1 401 ")


@contextmanager
def running_over_tls(folder: Path, **settings: Any) -> Iterator[tuple[tuple[str, int], ssl.SSLContext]]:
    """A server with a certificate, and a client's trust in it."""
    trust = certificate(folder)
    files = {"ssl_certfile": folder / "cert.pem", "ssl_keyfile": folder / "key.pem"}
    with running(folder, **files, **settings) as place:
        yield place, trust


def is_cut_off(folder: Path, wait_s: float, **settings: Any) -> bool:
    """Whether a stranger that says nothing of a TLS handshake is cut off within so many seconds."""
    with running_over_tls(folder, **settings) as (place, _), socket.create_connection(place, wait_s) as stranger:
        with suppress(TimeoutError):
            return stranger.recv(1) == b""
        return False


def n_shut_of(strangers: int, folder: Path, **settings: Any) -> int:
    """How many of so many strangers that say nothing are cut off while a caller is answered over TLS, twice."""
    with running_over_tls(folder, **settings) as (place, trust), ExitStack() as stack:
        url = "https://{}:{}".format(*place)
        client = stack.enter_context(httpx.Client(base_url=url, headers=BEARER, timeout=5, verify=trust))
        assert client.get("/v1/models").status_code == 200
        silent = [stack.enter_context(socket.create_connection(place, 5)) for _ in range(strangers)]
        time.sleep(0.2)
        for one in (client, stack.enter_context(httpx.Client(base_url=url, headers=BEARER, timeout=5, verify=trust))):
            assert one.get("/v1/models").status_code == 200
        return len(select.select(silent, [], [], 0)[0])


def test_of_many_tls_handshakes_that_are_not_over_the_oldest_are_shut_and_callers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_HANDSHAKES", 10)
    # Both callers' handshakes counted while they lasted.
    assert n_shut_of(25, tmp_path, **SETTINGS) in (15, 16)


def test_without_that_bound_all_of_them_stand(tmp_path: Path) -> None:
    assert n_shut_of(25, tmp_path, http="httptools") == 0


def test_a_tls_handshake_does_not_take_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HANDSHAKE_S", 0.1)
    assert is_cut_off(tmp_path, 5, **SETTINGS)


def test_without_that_bound_it_takes_a_minute(tmp_path: Path) -> None:
    assert not is_cut_off(tmp_path, 0.5)


def encrypted(place: tuple[str, int], trust: ssl.SSLContext) -> ssl.SSLSocket:
    return trust.wrap_socket(socket.create_connection(place, 5), server_hostname=place[0])


def seconds_after_the_answer(folder: Path, sent: bytes, **settings: Any) -> float:
    """For how long a stranger may go on over TLS after it was answered, two seconds at most."""
    with running_over_tls(folder, **settings) as (place, trust), encrypted(place, trust) as stranger:
        stranger.sendall(sent)
        assert stranger.recv(4096).startswith(b"HTTP/1.1 40")
        began = time.monotonic()
        with suppress(OSError):
            while time.monotonic() < began + 2:
                stranger.sendall(b"x" * 1000)
                time.sleep(0.01)
        return time.monotonic() - began


ENDLESS = b"POST /v1/scores HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nx"
NO_HTTP = b"x\r\n\r\n"


@pytest.mark.parametrize("sent", [ENDLESS, NO_HTTP])
def test_over_tls_a_stranger_is_shut_after_its_answer_too(tmp_path: Path, sent: bytes) -> None:
    assert seconds_after_the_answer(tmp_path, sent, **SETTINGS) < 1


def test_otherwise_it_goes_on_for_half_a_minute(tmp_path: Path) -> None:
    assert seconds_after_the_answer(tmp_path, NO_HTTP, http="httptools") >= 2


def test_a_long_answer_reaches_a_stranger_over_tls_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing for a while, and more is under way than a socket takes."""
    n_bytes = 20_000_000

    async def long(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % n_bytes)]})
        for _ in range(200):
            await send({"type": "http.response.body", "body": b"x" * (n_bytes // 200), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def refused(gate: Gate, scope: Any, receive: Any, send: Any) -> None:
        await long(scope, receive, _closing(send))

    monkeypatch.setattr(Gate, "__call__", refused)
    with running_over_tls(tmp_path, **SETTINGS) as (place, trust), encrypted(place, trust) as stranger:
        stranger.sendall(b"GET /docs HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.3)
        n_read = 0
        while found := stranger.recv(65536):
            n_read += len(found)
    assert n_read > n_bytes


def read_answer(caller: ssl.SSLSocket) -> None:
    answer = b""
    while not answer.endswith(b"ok"):
        part = caller.recv(4096)
        assert part, answer
        answer += part


def request_for(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()


def seconds_to_stop(folder: Path, path: str, **settings: Any) -> float:
    """How long a server takes to stop beside a caller over TLS, who leaves three seconds later."""
    with ExitStack() as stack:
        with running_over_tls(folder, **settings) as (place, trust):
            caller = stack.enter_context(encrypted(place, trust))
            caller.sendall(request_for(path))
            # An answer that is under way comes afterwards.
            if path != "/slow":
                read_answer(caller)
            else:
                time.sleep(0.3)
            leaves = threading.Timer(3, caller.shutdown, [socket.SHUT_RDWR])
            leaves.start()
            began = time.monotonic()
        took = time.monotonic() - began
        if path == "/slow":
            read_answer(caller)
        leaves.cancel()
        return took


@pytest.mark.parametrize("path", ["/v1/models", "/slow"])
def test_a_server_that_stops_waits_for_answers_and_for_no_idle_caller_over_tls(tmp_path: Path, path: str) -> None:
    assert seconds_to_stop(tmp_path, path, **SETTINGS) < 2.5


def test_otherwise_it_waits_for_as_long_as_the_caller_stays(tmp_path: Path) -> None:
    assert seconds_to_stop(tmp_path, "/v1/models", http="httptools") >= 2.9


def seconds_to_stop_beside_a_late_handshake(folder: Path) -> float:
    """A silent stranger's handshake is over while the last answer is under way; it leaves after three seconds."""

    def stay(stranger: socket.socket) -> None:
        with suppress(OSError), trust.wrap_socket(stranger, server_hostname=place[0]) as connection:
            connection.settimeout(3)
            connection.recv(1)

    with ExitStack() as stack:
        with running_over_tls(folder, **SETTINGS) as (place, trust):
            caller = stack.enter_context(encrypted(place, trust))
            caller.sendall(request_for("/slow"))
            stranger = stack.enter_context(socket.create_connection(place, 5))
            time.sleep(0.2)
            late = threading.Timer(0.4, stay, [stranger])
            late.start()
            began = time.monotonic()
        took = time.monotonic() - began
        read_answer(caller)
        late.join(10)
        return took


def test_nor_for_who_comes_while_it_stops(tmp_path: Path) -> None:
    assert seconds_to_stop_beside_a_late_handshake(tmp_path) < 2.5


def test_a_server_that_tells_known_connections_alone_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EncryptedListener, "is_open", True)
    assert seconds_to_stop_beside_a_late_handshake(tmp_path) >= 2.9
