"""A server behind TLS, with certificates of an authority of its own."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Certifies any name; who trusts `file` believes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.file = folder / "authority.pem"
        self.file.write_bytes(_pem(self._certified(self._name, self._key, None)))

    def context_for(self, name: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        files = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        files[0].write_bytes(_pem(self._certified(subject, key, name)))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*files)
        return context

    def _certified(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, name: str | None
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name is None, path_length=None), critical=True)
        )
        if name is not None:
            alternative = x509.SubjectAlternativeName([x509.DNSName(name)])
            made = made.add_extension(alternative, critical=False)
        return made.sign(self._key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


class TlsServer:
    """Answers 200 to everything; remembers what it was sent, and by which names it was called."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.names: list[str | None] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            self.received.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
        writer.close()


@asynccontextmanager
async def tls_server(context: ssl.SSLContext) -> AsyncIterator[TlsServer]:
    server = TlsServer()
    context.sni_callback = lambda _, name, __: server.names.append(name)
    door = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.port = door.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        door.close()
