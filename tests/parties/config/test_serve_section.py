"""Answers are counted over time exactly where a limit is set; HTTP off loopback takes TLS, and everywhere bounds."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from parties.config.serve_section import HttpSection, ServeSection


@pytest.mark.parametrize(
    ("given", "has_limits"),
    [({}, False), ({"batch_rows": 5}, False), ({"records_per_minute": 1}, True), ({"routed_bits_per_day": 9}, True)],
)
def test_a_limit_over_time_takes_a_file(given: dict[str, Any], has_limits: bool) -> None:
    assert ServeSection(**given).has_limits is has_limits


@pytest.mark.parametrize("key", ["batch_rows", "records_per_minute", "routed_bits_per_day"])
@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_a_limit_of_nothing_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        ServeSection(**{key: value})


LOCAL: dict[str, Any] = {"listen": "127.0.0.1:8080", "tokens": "tokens.txt"}
TLS = {"certificate": "cert.pem", "private_key": "key.pem"}


@pytest.mark.parametrize("listen", ["127.0.0.1:8080", "192.0.2.1:8080"])
@pytest.mark.parametrize("tls", [{}, TLS])
def test_clear_text_is_for_loopback_alone(listen: str, tls: dict[str, str]) -> None:
    given = {**LOCAL, "listen": listen, **tls}
    if tls or listen.startswith("127."):
        assert HttpSection(**given).listen == listen
        return
    with pytest.raises(ValidationError, match="is not on loopback, where certificate and private_key are needed"):
        HttpSection(**given)


@pytest.mark.parametrize("key", TLS)
def test_half_of_tls_is_refused(key: str) -> None:
    with pytest.raises(ValidationError, match="give both certificate and private_key, or neither"):
        HttpSection(**LOCAL, **{key: TLS[key]})


@pytest.mark.parametrize(
    "change",
    [{"timeout": 0}, {"timeout": 61}, {"max_records": 0}, {"max_waiting": 0}, {"mode": "local"}, {"tokens": None}],
)
def test_what_is_unbounded_or_unknown_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HttpSection(**{**LOCAL, **change})
