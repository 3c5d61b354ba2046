"""Headers are read before it is known who asks: so whatever they hold, it is quickly done."""

import time

import pytest
from starlette.types import Message

from gantline.api.call import Call
from gantline.api.headers import merged

LARGE = 60_000


async def receive() -> Message:
    raise AssertionError("cookies are read before the body")


def cookies(text: str) -> dict[str, str]:
    call = Call({"type": "http"}, receive, {"cookie": text}, "correlation")
    return dict(call.credentials.cookies)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a=1", {"a": "1"}),
        ("a=1; b=2;c=", {"a": "1", "b": "2", "c": ""}),
        ('a="with blank"; b="', {"a": "with blank", "b": '"'}),
        ("a=b=c", {"a": "b=c"}),
        (r'a="\\"', {"a": r"\\"}),
        ("nonsense; ;; a=1", {"a": "1"}),
        ("", {}),
    ],
)
def test_cookies_are_read_as_they_are_sent(text: str, read: dict[str, str]) -> None:
    assert cookies(text) == read


@pytest.mark.parametrize(
    "text",
    ['a="' + "\\" * LARGE + '"', "a=b;" * (LARGE // 4), ";" * LARGE],
    ids=["escapes", "many", "empty"],
)
def test_no_cookie_takes_long(text: str) -> None:
    began = time.process_time()
    cookies(text)
    assert time.process_time() - began < 1


def test_a_header_that_is_sent_often_is_joined_quickly() -> None:
    began = time.process_time()
    headers = merged([(b"Host", b"x"), *[(b"A", b"b")] * LARGE, (b"a", b"c")])
    assert time.process_time() - began < 1
    assert headers == {"host": "x", "a": "b, " * LARGE + "c"}
