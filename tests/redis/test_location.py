"""What a URL says, and that an error never repeats its password."""

from datetime import timedelta
from pathlib import Path

import pytest

from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreMisconfigured
from gantline.contract.wakeup import RedisChannel
from gantline.stores import store_from_url
from gantline.stores.redis import RedisStore
from gantline.stores.redis.location import Node, parse_url


def test_a_short_url_means_the_usual() -> None:
    location = parse_url("redis://")
    assert location.nodes == (Node("localhost", 6379),)
    assert (location.prefix, location.database, location.replicas) == ("gantline", 0, 0)
    assert location.tag == b"{gantline}"


def test_everything_can_be_said() -> None:
    location = parse_url(
        "rediss://me:p%40ss@one,two:7000,[::1]:7001/3?prefix=shop&durability=replicated&replicas=2"
        "&deadline=5&connections=4&wakeup=off&ssl_ca_certs=%2Fca.pem"
    )
    assert location.nodes == (Node("one", 6379), Node("two", 7000), Node("::1", 7001))
    assert (location.username, location.password) == ("me", "p@ss")
    assert location.tls == {"ssl_ca_certs": "/ca.pem"}
    assert (location.database, location.prefix, location.replicas) == (3, "shop", 2)
    assert (location.deadline, location.connections) == (timedelta(seconds=5), 4)
    assert not location.wakeup
    assert location.urls[2] == "rediss://me:p%40ss@[::1]:7001/3?ssl_ca_certs=%2Fca.pem"


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys", "redis+cluster"])
def test_every_scheme_names_the_store(scheme: str) -> None:
    store = store_from_url(f"{scheme}://host", clock=SystemClock())
    assert isinstance(store, RedisStore)
    assert store.location.cluster == scheme.endswith("cluster")
    assert (store.location.tls is not None) == (scheme in ("rediss", "valkeys"))


def test_a_local_socket_is_named_by_its_path() -> None:
    location = parse_url("redis+unix:///run/redis.sock?db=2&prefix=shop")
    assert (location.socket, location.database) == (Path("/run/redis.sock"), 2)
    assert location.urls == ("unix:///run/redis.sock?db=2",)


@pytest.mark.parametrize(
    "url",
    [
        "redis://host/notanumber",
        "redis://host:port",
        "redis+sentinel://host",
        "redis://host?nope=1",
        "redis://host?prefix=%7Bbraces%7D",
        "redis://host?durability=power_loss",
        "redis://host?replicas=2",
        "redis://host?deadline=never",
        "redis://host?wakeup=maybe",
        "redis+cluster://host/1",
        "redis://me:hush@1:2@host",
        "redis://me:hush/more@host",
        "redis://me:hush?2@host",
        "redis://me:hush#2@host",
    ],
)
def test_what_cannot_be_meant_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(StoreMisconfigured) as refused:
        parse_url(url)
    assert "hush" not in f"{refused.value} {refused.value.__cause__}"
    assert refused.value.next_step


def test_nothing_that_is_shown_holds_the_password() -> None:
    store = store_from_url("redis://me:hush@host?prefix=shop", clock=SystemClock())
    assert isinstance(store, RedisStore)
    assert isinstance(store.channel, RedisChannel)
    assert store.channel.name == "{shop}:wake:0"
    assert "hush" in store.channel.urls[0]
    assert "hush" not in f"{store.channel!r} {store.channel!s} {[store.location]}"
