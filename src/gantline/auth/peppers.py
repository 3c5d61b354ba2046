"""Peppers: the installation's own secrets, which are never in its store."""

import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Final

from gantline.contract.errors import AuthMisconfigured

PEPPER_VARIABLE: Final = "GANTLINE_KEY_PEPPER"
SHORTEST: Final = 32
_ID: Final = re.compile(r"[A-Za-z0-9-]{1,32}")
_FEWEST_DIFFERENT: Final = 10
_UNNAMED: Final = "1"


class Peppers:
    """The pepper in use, and older ones that something was made with.

    Written as `<id>:<secret>`, several separated by blanks, the one in use first. To rotate, put a
    new one in front; take the old one out when no key that was made with it is used any more. A
    single secret without an id has the id 1.
    """

    def __init__(self, peppers: Mapping[str, bytes]) -> None:
        if not peppers:
            raise AuthMisconfigured("There is no pepper.", next_step=explain_how_to_make())
        self._peppers = dict(peppers)
        self._derived: dict[tuple[str, str], bytes] = {}
        self.current = next(iter(peppers))
        """The id of the one in use."""

    @classmethod
    def read(cls, text: str, *, variable: str = PEPPER_VARIABLE) -> "Peppers":
        """Read them as they are written in the environment; raise AuthMisconfigured.

        `variable` names the environment variable in errors.
        """
        peppers: dict[str, bytes] = {}
        for part in text.split():
            named, colon, rest = part.partition(":")
            pepper_id, secret = (named, rest) if colon else (_UNNAMED, part)
            _check(pepper_id, secret, variable, taken=pepper_id in peppers)
            peppers[pepper_id] = secret.encode()
        return cls(peppers)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Peppers":
        """Read `GANTLINE_KEY_PEPPER`; raise AuthMisconfigured, which says how to make one."""
        text = environment.get(PEPPER_VARIABLE, "")
        if not text.strip():
            raise AuthMisconfigured(
                f"{PEPPER_VARIABLE} is not set, so no API key can be made or checked.",
                next_step=explain_how_to_make(),
            )
        return cls.read(text)

    @classmethod
    def random(cls) -> "Peppers":
        """One that lives as long as the process: for `gantline dev` and tests."""
        return cls({"random": secrets.token_bytes(SHORTEST)})

    def __contains__(self, pepper_id: str) -> bool:
        return pepper_id in self._peppers

    def __repr__(self) -> str:
        return f"Peppers({', '.join(self._peppers)})"

    def mac(self, purpose: str, message: bytes, *, pepper_id: str) -> bytes:
        """Make the HMAC-SHA256 of a message, with a key of its own for every purpose."""
        key = self._derived.get((purpose, pepper_id))
        if key is None:
            key = hmac.digest(self._peppers[pepper_id], f"gantline {purpose}".encode(), "sha256")
            self._derived[purpose, pepper_id] = key
        return hmac.digest(key, message, "sha256")


def new_pepper() -> str:
    """Make a new random secret."""
    return secrets.token_urlsafe(SHORTEST)


def _check(pepper_id: str, secret: str, variable: str, *, taken: bool) -> None:
    """Raise AuthMisconfigured; the text never contains the secret or a part of it."""
    problem = ""
    if not _ID.fullmatch(pepper_id):
        problem = "an id that is not made of 1 to 32 letters, digits and hyphens"
    elif taken:
        problem = f"two peppers of the id {pepper_id}"
    elif len(secret) < SHORTEST:
        problem = f"a pepper of less than {SHORTEST} characters"
    elif len(set(secret)) < _FEWEST_DIFFERENT:
        problem = "a pepper that is not random"
    if problem:
        next_step = explain_how_to_make(variable)
        raise AuthMisconfigured(f"{variable} has {problem}.", next_step=next_step)


def explain_how_to_make(variable: str = PEPPER_VARIABLE) -> str:
    return (
        f"Make one with `gantline key pepper`, and set {variable}=1:<pepper> "
        "for everything that serves or makes keys."
    )
