"""Routes and status codes of the service: every expected error is a sentence, and no answer repeats a request."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from opboost.errors import DataError
from parties.config.serve_section import HttpSection
from parties.errors import PartyError, Unavailable
from parties.service.app import make_app
from parties.service.metrics import ServiceMetrics

DOCS = Path(__file__).parents[3] / "docs"
BODY = {"records": [{"id": "zebra"}, {"id": "k2"}]}


class Models:
    """A model that answers as it is told to, and no shadow."""

    def __init__(self, end: Any = None, *, refusal: str = "", is_alive: bool = True) -> None:
        scorer = SimpleNamespace(refusal=refusal, is_alive=is_alive)
        self.answering = SimpleNamespace(name="spring", scorer=scorer)
        self.all, self.metrics, self._end = (self.answering,), ServiceMetrics(), end

    async def score(self, body: Any, *, caller: str) -> Any:
        if isinstance(self._end, Exception):
            raise self._end
        return {"model": "spring", "scores": []}


def ask(models: Models, method: str, path: str, **given: Any) -> tuple[httpx.Response, list[str]]:
    told: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        yield

    limits = HttpSection.model_validate({"max_records": 2, "tokens": "tokens.txt", "listen": "127.0.0.1:1"})
    app = make_app(models, limits, lifespan=lifespan, note=lambda event, sentence: told.append(sentence))  # type: ignore[arg-type]

    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.request(method, path, **given)

    return asyncio.run(call()), told


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        (None, 200, "spring"),
        (Unavailable("shop is away"), 503, "shop is away. No score was computed"),
        (TimeoutError(), 504, "did not come in time"),
        (PartyError("no such column"), 422, "no such column"),
        (DataError("a cell is infinite"), 422, "a cell is infinite"),
        (ZeroDivisionError("zebra"), 500, "a defect of the service"),
    ],
)
def test_every_end_of_a_request_has_its_status_and_a_sentence(end: Any, status: int, words: str) -> None:
    answer, told = ask(Models(end), "POST", "/v1/scores", json=BODY)
    assert answer.status_code == status
    assert words in answer.text
    assert "zebra" not in answer.text + "".join(told)
    assert bool(told) == (status == 500)
    assert ("Retry-After" in answer.headers) == (status == 503)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"records": [*BODY["records"], {"id": "k3"}]}, 413, "3 records; at most 2"),
        ({"records": "zebra"}, 422, "records: "),
        ({"records": [{"id": {"zebra": 1}}]}, 422, "Nothing was asked"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_without_its_words(body: Any, status: int, words: str) -> None:
    answer, told = ask(Models(), "POST", "/v1/scores", json=body)
    assert (answer.status_code, told) == (status, [])
    assert words in answer.text
    assert "zebra" not in answer.text


def test_a_body_without_its_header_is_told_of_the_header() -> None:
    answer, told = ask(Models(), "POST", "/v1/scores", content=json.dumps(BODY))
    assert (answer.status_code, told) == (422, [])
    assert "with the header 'Content-Type: application/json'. Nothing was asked" in answer.text


def test_the_example_of_the_documents_is_answered() -> None:
    (example,) = re.findall(r"^curl (.*\\\n.*)$", (DOCS / "how-to" / "serve.md").read_text(), flags=re.M)
    words = shlex.split(example)
    headers = dict(words[i + 1].split(": ") for i, word in enumerate(words) if word == "-H")
    answer, _ = ask(Models(), "POST", "/v1/scores", content=words[words.index("-d") + 1], headers=headers)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "away", "dead"),
    [("/health", 200, 503), ("/ready", 503, 200), ("/v1/models", 200, 200), ("/metrics", 200, 200)],
)
def test_health_is_of_the_process_and_readiness_of_the_peers(path: str, away: int, dead: int) -> None:
    assert ask(Models(), "GET", path)[0].status_code == 200
    assert ask(Models(refusal="shop is away"), "GET", path)[0].status_code == away
    assert ask(Models(is_alive=False), "GET", path)[0].status_code == dead


def test_who_is_away_is_told_where_callers_need_a_token_alone() -> None:
    away = Models(refusal="shop is away")
    assert ask(away, "GET", "/v1/models")[0].json() == {"answering": {"model": "spring", "away": "shop is away"}}
    assert "shop" not in ask(away, "GET", "/ready")[0].text


def test_a_key_that_is_given_twice_is_refused() -> None:
    for text in ('{"records": [{"id": "zebra", "columns": {"age": 1, "age": 2}}]}', '{"records": 1, "records": 2}'):
        answer, _ = ask(Models(), "POST", "/v1/scores", content=text, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["detail"]) == (
            400,
            "an object of the body has a key twice. Nothing was asked",
        )


@pytest.mark.parametrize(
    "content", [b"zebra", b'{"records": [{"id": "\xe9"}]}', b"[" * 100_000, b'{"records": ' + b"9" * 5000 + b"}"]
)
def test_a_body_that_is_no_json_is_refused_in_one_sentence(content: bytes) -> None:
    """No text, nested too deeply, or with a number that Python does not read."""
    answer, told = ask(Models(), "POST", "/v1/scores", content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["detail"]) == (400, "the body is no JSON. Nothing was asked")
    assert told == []
