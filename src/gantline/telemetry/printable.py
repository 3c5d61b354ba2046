"""Text as a terminal may get it: what would steer the terminal is written out, not obeyed."""

import re
from typing import Final

# Controls of ASCII and Latin-1 but tab and newline, marks, overrides and isolates of the direction
# of writing, line separators, and lone surrogates, which cannot be written at all.
_STEERING: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
)
_IN_TEXT: Final = re.compile(f"[{_STEERING}]")
_IN_A_LINE: Final = re.compile(rf"[\t\n{_STEERING}]")


def printable(text: str) -> str:
    """Show a text of several lines."""
    return _IN_TEXT.sub(_escape, text)


def printable_line(text: str) -> str:
    """Show a text in one line."""
    return _IN_A_LINE.sub(_escape, text)


def printable_json(text: str) -> str:
    """Write JSON that is the same for its reader: such characters are only in its strings."""
    return _IN_TEXT.sub(_escape_in_json, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def _escape_in_json(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
