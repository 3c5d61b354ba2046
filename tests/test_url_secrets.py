"""Passwords are hidden in every spelling that a driver takes."""

from urllib.parse import quote

import psycopg
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from gantline.app.settings import Value
from gantline.bridge.broker import parse_bridge_url
from gantline.stores.postgres.location import parse_url as parse_postgres
from gantline.stores.redis.location import parse_url as parse_redis
from gantline.telemetry.url_secrets import without_secrets
from gantline.wakeups.trigger import parse_trigger

# What begins and ends every password here, and nothing else.
FIRST, LAST = "hUsH", "sEcReT"
WORD = f"{FIRST}{LAST}"

_SHOWN = [
    ("sqlite:///jobs.db", "sqlite:///jobs.db"),
    ("sqlite:////srv/me@home/jobs.db", "sqlite:////srv/me@home/jobs.db"),
    ("memory://", "memory://"),
    ("redis://host:6379/0?prefix=a", "redis://host:6379/0?prefix=a"),
    ("postgresql:///db?host=/run/pg&passfile=/etc/pg", None),
    ("shop:jobs", "shop:jobs"),
    ("me@shop", "me@shop"),
    ("documents:10,default:5", "documents:10,default:5"),
]


@pytest.mark.parametrize(("text", "shown"), _SHOWN)
def test_what_is_no_secret_is_shown(text: str, shown: str | None) -> None:
    assert without_secrets(text) == (shown or text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"postgresql://me:{WORD}@host/db", "postgresql://…@host/db"),
        (f"postgresql://me:{FIRST}@{LAST}@host/db", "postgresql://…@host/db"),
        (f"postgresql://me:{FIRST}/{LAST}@host/db", "postgresql://…@host/db"),
        (f"postgresql://me:{FIRST}?{LAST}@host/db", "postgresql://…@host/db"),
        (f"postgresql://me:{FIRST}#{LAST}@host/db", "postgresql://…@host/db"),
        (f"POSTGRESQL://me:{WORD}@a:1,b:2/db", "POSTGRESQL://…@a:1,b:2/db"),
        (f"postgresql+psycopg://me:{WORD}@[::1]/db", "postgresql+psycopg://…@[::1]/db"),
        (f"post\tgresql:/\n/me:{WORD}@host/db", "postgresql://…@host/db"),
        (f" postgresql://me:{WORD}@host/db", " postgresql://…@host/db"),
        (f"postgresql:me:{WORD}@host/db", "postgresql:…@host/db"),
        (f"postgresql:/me:{WORD}@host/db", "postgresql:/…@host/db"),
        (f"postgresql://host/db?password={WORD}&schema=a", "postgresql://host/db?password=…&schema=a"),
        (f"postgresql://host/db?schema=a&PASSWORD={WORD}", "postgresql://host/db?schema=a&PASSWORD=…"),
        (f"postgresql://host/db?pass%77ord={WORD}", "postgresql://host/db?pass%77ord=…"),
        (f"postgresql://host/db?sslpassword={WORD}", "postgresql://host/db?sslpassword=…"),
        (f"postgresql://host/db?oauth_client_secret={WORD}", "postgresql://host/db?oauth_client_secret=…"),
        (f"postgresql://host/db?scram_client_key={WORD}", "postgresql://host/db?scram_client_key=…"),
        (f"postgresql://host/db?password={FIRST}#{LAST}", "postgresql://host/db?password=…"),
        (f"redis://:{WORD}@host/0", "redis://…@host/0"),
        (f"redis+unix://:{WORD}@/run/redis.sock?db=1", "redis+unix://…@/run/redis.sock?db=1"),
        (f"rediss+cluster://me:{WORD}@a:1,b:2", "rediss+cluster://…@a:1,b:2"),
        (f"amqp://me:{WORD}@host/", "amqp://…@host/"),
        (f"amqps://me:{WORD}@host/v?exchange=a", "amqps://…@host/v?exchange=a"),
        (f"host=a password={WORD} user=b", "host=a password=… user=b"),
        (f"host=a password = '{FIRST} \\' {LAST}' user=b", "host=a password = … user=b"),
        (f"host=a password={FIRST}\\ {LAST} user=b", "host=a password=… user=b"),
        (f"user='b'password={WORD}", "user='b'password=…"),
        (f"user='password=' sslpassword='{WORD}", "user='password=' sslpassword=…"),
    ],
)  # fmt: skip
def test_a_secret_is_hidden(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert Value(text, "flag").shown == shown


passwords = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])).map(
    lambda inner: FIRST + inner + LAST
)


def encoded(text: str, every: bool) -> str:
    """Percent-encoded where it must be, or each byte of it."""
    return "".join(f"%{one:02X}" for one in text.encode()) if every else quote(text, safe="")


def assert_hidden(text: str, password: str) -> None:
    shown = without_secrets(text)
    for part in (FIRST, LAST, password, quote(password, safe=""), encoded(password, every=True)):
        assert part not in shown


_HOSTS = st.sampled_from(["host", "a:1,b:2", "[::1]:5", "", "%2Frun%2Fpg"])


@given(passwords, st.booleans(), _HOSTS, st.sampled_from(["", "me"]))
def test_no_login_that_libpq_takes_is_shown(
    password: str, every: bool, host: str, user: str
) -> None:
    text = f"postgresql://{user}:{encoded(password, every)}@{host}/db"
    assert conninfo_to_dict(text)["password"] == password
    assert_hidden(text, password)
    assert_hidden(repr(parse_postgres(text)), password)


@given(passwords, st.booleans(), st.sampled_from(["password", "sslpassword", "%70assword"]))
def test_no_option_that_libpq_takes_is_shown(password: str, every: bool, name: str) -> None:
    text = (
        f"postgresql://host/db?connect_timeout=1&{name}={encoded(password, every)}&sslmode=prefer"
    )
    assert password in conninfo_to_dict(text).values()
    assert_hidden(text, password)


@given(passwords, st.sampled_from(["password", "sslpassword"]))
def test_no_pair_that_libpq_takes_is_shown(password: str, name: str) -> None:
    options = {"host": "a b", name: password, "dbname": "c"}
    assert_hidden(make_conninfo("", **options), password)


@given(st.text())
def test_no_url_as_it_was_typed_is_shown_where_libpq_takes_it(inner: str) -> None:
    """Not encoded, as people write it at first."""
    password = FIRST + inner + LAST
    for text in (f"postgresql://me:{password}@host/db", f"host=a password={password}"):
        try:
            found = conninfo_to_dict(text)
        except (psycopg.ProgrammingError, UnicodeEncodeError, ValueError):
            continue
        assume(FIRST in str(found.get("password")) and LAST in str(found.get("password")))
        assert_hidden(text, password)


@given(passwords, st.booleans(), st.sampled_from(["redis://", "rediss+cluster://", "valkey://"]))
def test_no_login_of_redis_is_shown(password: str, every: bool, scheme: str) -> None:
    text = f"{scheme}:{encoded(password, every)}@host:1,other:2"
    location = parse_redis(text)
    assert location.password == password
    assert_hidden(text, password)
    assert FIRST not in repr(location)
    assert LAST not in repr(location)


@given(passwords, st.booleans())
def test_no_login_of_a_broker_is_shown(password: str, every: bool) -> None:
    text = f"amqp://me:{encoded(password, every)}@host/vhost"
    assert_hidden(text, password)
    for named in (parse_trigger(text), parse_bridge_url(text)):
        assert FIRST not in repr(named)
        assert LAST not in repr(named)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "part", ["a", "a:", "a=", "x ", "\\", "'", "a='", "@", ":@", "?a", "&", "://", " "], ids=ascii
)
def test_a_long_text_takes_no_longer_than_its_length(part: str) -> None:
    for start in ("", "a", "a:", "a='"):
        without_secrets(start + part * 200_000)
