"""Where a health port listens: `:8081`, `127.0.0.1:8081`, `[::1]:8081`, or a local socket."""

from pathlib import Path
from typing import Final, NamedTuple

from gantline.contract.errors import InvalidInput

_LOCAL: Final = "unix:"


class Address(NamedTuple):
    """A TCP port, of all interfaces where no host is named; or the path of a local socket."""

    host: str | None = None
    port: int = 0
    path: Path | None = None

    def __str__(self) -> str:
        if self.path is not None:
            return f"{_LOCAL}{self.path}"
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read an address; raise InvalidInput. Port 0 is any that is free."""
    if text.startswith(_LOCAL):
        return Address(path=Path(text.removeprefix(_LOCAL)))
    host, colon, port = text.rpartition(":")
    is_bare_v6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not colon or is_bare_v6 or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise InvalidInput(
            f"{text[:64]!r} is not an address to listen on.",
            next_step="Write :8081, 127.0.0.1:8081 or [::1]:8081.",
        )
    return Address(host.strip("[]") or None, int(port))
