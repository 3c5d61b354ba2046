"""Peppers: the secrets of the installation that are not in its store."""

from collections.abc import Mapping
from typing import Final

PEPPER_VARIABLE: Final = "WINDLASS_KEY_PEPPER"


class Peppers:
    """The pepper in use, and older ones that keys were stored with.

    `WINDLASS_KEY_PEPPER` is `<id>:<base64 or text of 32 bytes or more>`, several separated by
    blanks; the first is used for new keys, the others for those made with them.
    """

    def __init__(self, peppers: Mapping[str, bytes]) -> None:
        raise NotImplementedError

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Peppers":
        """Read `WINDLASS_KEY_PEPPER`; raise AuthMisconfigured that says how to make one."""
        raise NotImplementedError

    @classmethod
    def random(cls) -> "Peppers":
        """One that lives as long as the process: for `windlass dev` and tests."""
        raise NotImplementedError
