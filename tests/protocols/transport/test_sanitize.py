"""A peer's words are one printable line of bounded length before anybody reads them."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import DecodeError
from protocols.messages.message import MAX_UNKNOWN, PROTOCOL_VERSION
from protocols.messages.vertical import Abort
from protocols.transport.channel import aborted
from protocols.transport.codec import decode, encode
from protocols.transport.sanitize import readable


@given(text=st.text(max_size=60), limit=st.integers(1, 40))
def test_whatever_is_said_becomes_one_printable_line(text: str, limit: int) -> None:
    found = readable(text, limit)
    assert len(found) <= limit
    assert found.isprintable()
    assert "\n" not in found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain words", "plain words"),
        ("two\nlines\t and tab", "two lines and tab"),
        ("\x1b[2Jcleared", "?[2Jcleared"),
        ("left\u202eright", "left?right"),
        ("naïve – größer", "naïve – größer"),
        ("x" * 50, "x" * 19 + "…"),
    ],
)
def test_words_are_kept_and_tricks_are_not(text: str, found: str) -> None:
    assert readable(text, 20) == found


def test_an_aborts_words_are_made_readable() -> None:
    said = aborted("b", Abort(phase="p\x1b[31m" + "q" * 100, reason="line\nerror: forged\x07" + "z" * 1900))
    words = str(said)
    assert words.startswith("b ended the run while p?[31mqqq")
    assert words.isprintable()
    assert len(words) < 2200


@pytest.mark.parametrize(
    ("n_fields", "words"), [(MAX_UNKNOWN, "and 3 more$"), (50, "wrong or missing fields: lengths$")]
)
def test_an_error_names_a_few_wrong_fields_and_none_of_a_peers_tricks(n_fields: int, words: str) -> None:
    fields = {f"{i}\x1b]0;title\x07" + "w" * 500: 1 for i in range(n_fields)}
    header = {"version": PROTOCOL_VERSION, "kind": "done", "fields": fields, "arrays": []}
    with pytest.raises(DecodeError, match=words) as refusal:
        decode([msgpack.packb(header)])
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 600


def test_what_this_project_says_itself_is_passed_on_unchanged() -> None:
    reason = "column 'größe' has 3 missing cells; say `category`. Nothing was released"
    message = decode(encode(Abort(phase="greeting", reason=reason)))
    assert isinstance(message, Abort)
    assert str(aborted("b", message)).endswith(f"while greeting: {reason}")
