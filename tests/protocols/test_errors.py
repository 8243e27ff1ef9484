"""Exceptions of the wire: one root, and another version is a message that cannot be decoded."""

from __future__ import annotations

import inspect

from protocols import errors
from protocols.errors import DecodeError, ProtocolError, VersionMismatch


def test_every_exception_has_the_root_and_stands_in_the_tree_of_the_docstring() -> None:
    found = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, Exception)]
    assert len(found) > 1
    for one in found:
        assert issubclass(one, ProtocolError)
        assert not issubclass(one, OSError)
        assert f"{one.__name__}\n" in f"{errors.__doc__}" or f"{one.__name__} " in f"{errors.__doc__}"
    assert issubclass(VersionMismatch, DecodeError)
