"""Who may call the HTTP service, and how much a caller may send."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from parties.errors import ConfigError
from parties.service.access import MIN_TOKEN, Gate, Tokens
from parties.service.metrics import ServiceMetrics
from protocols.errors import KeyFileError

ONE, OTHER = "a" * MIN_TOKEN, "b" * 43


def tokens_file(folder: Path, text: str = f"# callers\nscoring {ONE}\n\nnightly\t{OTHER}\n", mode: int = 0o600) -> Path:
    path = folder / "tokens.txt"
    path.touch(mode)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_caller_is_known_by_its_whole_token_alone(tmp_path: Path) -> None:
    tokens = Tokens(tokens_file(tmp_path))
    assert tokens.caller(f"Bearer {ONE}") == "scoring"
    assert tokens.caller(f"bearer {OTHER}") == "nightly"
    for wrong in (
        "",
        "Bearer",
        "Bearer ",
        f"Basic {ONE}",
        ONE,
        f"Bearer {ONE[:-1]}",
        f"Bearer {ONE}a",
        "Bearer \u2603",
    ):
        assert tokens.caller(wrong) is None


def test_tokens_are_compared_by_digest_in_constant_time_with_every_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(tokens_file(tmp_path))
    assert ONE.encode() not in b"".join(tokens._digests.values())
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr("parties.service.access.hmac.compare_digest", compare)
    for token in (ONE, "x", "y" * 4000):
        tokens.caller(f"Bearer {token}")
    assert compared == [(32, 32)] * 6


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "holds no token"),
        ("# nothing\n", "holds no token"),
        (f"{ONE}\n", "line 1 must be a name"),
        (f"\nscoring {ONE[:-1]}\n", "line 2 must be a name"),
        (f"scoring {ONE}\nscoring {OTHER}\n", "line 2 must be a name, once"),
        (f"scoring {ONE} {OTHER}\n", "line 1"),
    ],
)
def test_a_malformed_file_of_tokens_is_refused_without_a_token_in_the_sentence(
    tmp_path: Path, text: str, found: str
) -> None:
    with pytest.raises(ConfigError, match=found) as caught:
        Tokens(tokens_file(tmp_path, text))
    assert ONE[:-1] not in str(caught.value)


def test_of_new_tokens_it_is_known_whose_have_changed(tmp_path: Path) -> None:
    before = Tokens(tokens_file(tmp_path, f"scoring {ONE}\nnightly {OTHER}\nyearly {'c' * 40}\n"))
    assert before.changed(Tokens(tokens_file(tmp_path, f"scoring {ONE}\nnightly {'d' * 40}\nnew {OTHER}\n"))) == {
        "nightly",
        "yearly",
    }


def test_a_file_of_tokens_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="0640"):
        Tokens(tokens_file(tmp_path, mode=0o640))
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigError, match="is a named pipe, where a file of tokens is needed"):
        Tokens(tmp_path / "pipe")


def make_gate(folder: Path) -> tuple[Gate, list[bytes], ServiceMetrics]:
    app, seen, metrics = FastAPI(max_body_size=100), list[bytes](), ServiceMetrics()

    @app.post("/echo")
    async def echo(request: Request) -> int:
        seen.append(await request.body())
        return len(seen[-1])

    @app.post("/json")
    async def parsed(body: dict[str, Any]) -> int:
        return len(body)

    @app.get("/caller")
    async def caller(request: Request) -> str:
        return str(request.state.caller)

    @app.get("/health")
    async def health() -> str:
        return "ok"

    gate = Gate(app, tokens=Tokens(tokens_file(folder)), body_s=0.2, metrics=metrics)
    return gate, seen, metrics


def call(gate: Gate, method: str, path: str, **given: Any) -> httpx.Response:
    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://service") as client:
            return await client.request(method, path, **given)

    return asyncio.run(run())


def bearer(token: str = ONE) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_who_has_no_token_is_refused_before_its_body_is_read(tmp_path: Path) -> None:
    gate, seen, metrics = make_gate(tmp_path)
    read = []

    async def body() -> AsyncIterator[bytes]:
        read.append(1)
        yield b"x"

    for headers in ({}, bearer("c" * 40)):
        refused = call(gate, "POST", "/echo", headers=headers, content=body())
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert seen == read == []
    assert call(gate, "GET", "/health").status_code == 200
    assert call(gate, "GET", "/nowhere").status_code == 401
    assert call(gate, "POST", "/echo", headers=bearer(), content=b"x" * 100).json() == 100
    text = metrics.text({}).decode()
    assert 'opboost_http_requests_total{caller="",code="401"} 3.0' in text
    assert 'opboost_http_requests_total{caller="scoring",code="200"} 1.0' in text
    assert ONE not in text


def test_whoever_scores_a_request_knows_its_caller_by_name(tmp_path: Path) -> None:
    gate, _, _ = make_gate(tmp_path)
    assert [call(gate, "GET", "/caller", headers=bearer(one)).json() for one in (ONE, OTHER)] == ["scoring", "nightly"]


@pytest.mark.parametrize("path", ["/echo", "/json"])
def test_a_body_that_is_too_large_or_too_slow_is_given_up(tmp_path: Path, path: str) -> None:
    gate, seen, _ = make_gate(tmp_path)
    assert call(gate, "POST", path, headers=bearer(), content=b"[" * 101).status_code == 413

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 40

    assert call(gate, "POST", path, headers=bearer(), content=endless()).status_code == 413

    async def slow() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"{"
            await asyncio.sleep(0.05)

    late = call(gate, "POST", path, headers=bearer(), content=slow())
    assert (late.status_code, late.json()) == (408, {"detail": "the body did not come within 0.2 s"})
    assert seen == []
