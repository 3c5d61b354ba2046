"""What may be shown of a setting that names a server: all but who logs in, and how."""

import re
from typing import Final
from urllib.parse import unquote

HIDDEN: Final = "…"
# Readers of URLs pass over these wherever they stand.
_PASSED_OVER: Final = re.compile(r"[\t\r\n]")
_URL: Final = re.compile(r"\s*[a-z][a-z0-9+.-]*:", re.IGNORECASE)
# To the last @: a password may have one that should have been encoded. After a third slash there
# is a path, and nobody logs in.
_LOGIN: Final = re.compile(rf"\A({_URL.pattern}/{{0,2}})(?!/).*@", re.IGNORECASE | re.DOTALL)
_SECRET_NAME: Final = re.compile("password|passwd|pwd|secret|token|_key$", re.IGNORECASE)
# name=value, name = 'a value': as libpq reads it, whose white space is that of C. A name without a
# value is matched too, so that no character is looked at from many beginnings.
_PAIR: Final = re.compile(
    r"(?P<name>[^ \t-\r=]++)(?:(?P<sign>[ \t-\r]*+=[ \t-\r]*+)"
    r"(?:'(?:\\.|[^'\\])*+'?|(?:\\.|[^ \t-\r\\])*+))?",
    re.DOTALL,
)


def without_secrets(text: str) -> str:
    """Leave out who logs in, and with which password, however the driver lets them be written."""
    url = _PASSED_OVER.sub("", text)
    if not _URL.match(url):
        return _PAIR.sub(_hide_in_pair, text)
    place, mark, query = _LOGIN.sub(rf"\1{HIDDEN}@", url).partition("?")
    return place + mark + "&".join(map(_hide_option, query.split("&")))


def _hide_option(option: str) -> str:
    name, sign, _ = option.partition("=")
    return f"{name}={HIDDEN}" if sign and _SECRET_NAME.search(unquote(name)) else option


def _hide_in_pair(match: re.Match[str]) -> str:
    is_secret = match["sign"] and _SECRET_NAME.search(match["name"])
    return f"{match['name']}{match['sign']}{HIDDEN}" if is_secret else match[0]
