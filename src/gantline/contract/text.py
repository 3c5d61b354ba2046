"""Text that every store can keep: what a name may be, and how free text is made safe."""

import re
from typing import Final

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
# NUL is refused by PostgreSQL's text, a lone surrogate by UTF-8 itself.
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
# Control characters of ASCII and Latin-1, line separators, lone surrogates.
_NOT_IN_NAMES: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_NOT_IN_A_NAME: Final = re.compile(f"[{_NOT_IN_NAMES}]")
NAME_PATTERN: Final = rf"^[^{_NOT_IN_NAMES}]*\Z"
_NOT_IN_A_CODE: Final = re.compile(r"[^A-Z0-9_]+")

ERROR_MESSAGE_LIMIT: Final = 1_000
ERROR_DETAIL_LIMIT: Final = 16_384
ERROR_CODE_LIMIT: Final = 64
LABEL_LIMIT: Final = 256


def storable(text: str, limit: int) -> str:
    """Replace what a store could refuse and cut what is too long, saying how much was cut."""
    if len(text) > limit:
        note = f" [{len(text) - limit} more characters cut]"
        text = (text[: max(0, limit - len(note))] + note)[:limit]
    return _UNSTORABLE.sub(REPLACEMENT, text)


def is_storable(text: str) -> bool:
    """Whether a store can keep it as it is. If not, no text in a store equals it."""
    return _UNSTORABLE.search(text) is None


def storable_start(text: str) -> str:
    """Cut a text before what no store can keep, to go on reading after it."""
    return _UNSTORABLE.split(text, maxsplit=1)[0]


def error_code(text: str) -> str:
    """Bring a code into its stable shape, UPPER_SNAKE."""
    plain = _NOT_IN_A_CODE.sub("_", text.upper()).strip("_")
    return plain[:ERROR_CODE_LIMIT].strip("_") or "HANDLER_ERROR"


def name_problem(text: str, limit: int) -> str | None:
    """Say what keeps `text` from being a name, or None."""
    if len(text) > limit:
        return f"is longer than {limit} characters"
    # Asking first whether all of it is printable is five times cheaper than the search.
    if not text.isprintable() and _NOT_IN_A_NAME.search(text):
        return "contains a control character or a lone surrogate"
    return None
