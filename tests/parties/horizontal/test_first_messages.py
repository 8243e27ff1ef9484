"""Terms that differ are told with both values, and in short."""

from __future__ import annotations

from parties.horizontal.first_messages import term_differences
from protocols.transport.codec import MAX_NAMED


def test_terms_that_differ_are_named_with_both_values() -> None:
    assert term_differences({"a": 1, "b": 2}, {"a": 1, "b": 3}, "hub") == ["b: hub has 3, this party 2"]
    assert term_differences({"a": None}, {}, "hub") == ["a: hub has nothing, this party None"]
    assert term_differences({}, {"a": 1}, "hub") == ["a: hub has 1, this party nothing"]
    assert term_differences({"a": 1}, {"a": 1}, "hub") == []
    # A number of trees, and a share of all of them.
    assert term_differences({"batch_size": 1}, {"batch_size": 1.0}, "hub") == ["batch_size: hub has 1.0, this party 1"]


def test_a_peer_that_makes_up_many_long_terms_is_told_in_short() -> None:
    theirs = {f"k{i}\n" + "x" * 1000: "y" * 1000 for i in range(MAX_NAMED + 7)}
    found = term_differences({}, theirs, "hub")
    assert len(found) == MAX_NAMED + 1
    assert found[-1] == "7 more terms differ"
    assert max(map(len, found)) < 400
    assert not [sentence for sentence in found if "\n" in sentence]
