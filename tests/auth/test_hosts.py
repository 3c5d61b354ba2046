"""By which names a server may be called."""

import pytest

from gantline.auth.hosts import LOOPBACK, is_loopback, name_in, names_for


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104  # it is asked about, and not listened on
        ("::", False),
        ("192.0.2.1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_only_this_host_reaches_a_loopback_address(address: str, is_local: bool) -> None:
    assert is_loopback(address) is is_local
    assert bool(names_for(address)) is is_local


def test_names_are_those_of_this_host_and_those_that_are_given() -> None:
    assert set(names_for("127.9.9.9")) == {*LOOPBACK, "127.9.9.9"}
    assert set(names_for("::", ["Shop.Example"])) == {*LOOPBACK, "::", "shop.example"}
    assert names_for("127.0.0.1", ["*"]) == ()


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:8080", "localhost"),
        ("[::1]:8080", "::1"),
        (" LOCALHOST ", "localhost"),
        ("localhost@evil.example", "localhost@evil.example"),
        ("localhost.evil.example", "localhost.evil.example"),
        ("", ""),
    ],
)
def test_a_name_is_read_without_its_port(header: str, name: str) -> None:
    assert name_in(header) == name
