"""Sanitizing of a peer's text for logs and terminals: one line, printable, bounded."""

from __future__ import annotations


def readable(text: str, limit: int) -> str:
    """The text on one line, at most `limit` characters long.

    Line breaks and tabs become blanks; whatever else a terminal could obey, or that would turn the reading direction,
    becomes a question mark.
    """
    words = " ".join(text[: 4 * limit].split())
    cut = words if len(words) <= limit else f"{words[: limit - 1]}…"
    return "".join(character if character.isprintable() else "?" for character in cut)
