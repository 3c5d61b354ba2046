"""Verifying a code that was scanned: against what is kept, bit by bit."""

from typing import NamedTuple

from examples.battery_passport.books import Books
from examples.battery_passport.canonical import base32, digest, merkle_root
from examples.battery_passport.qr import QrText
from examples.battery_passport.signing import is_signed
from gantline import Permanent


class Check(NamedTuple):
    what: str
    holds: bool


async def verify(books: Books, tenant: str, text: str) -> list[Check]:
    """Make the checks in order; one that fails is the last one."""
    code = QrText.read(text)
    if code is None:
        return [Check("It is the code of a battery passport", False)]
    try:
        version = await books.version(tenant, code.passport_version_id)
        signature = await books.signature(tenant, code.passport_version_id)
    except Permanent:
        return [Check("Its passport is known and signed", False)]
    snapshot = await books.snapshot(tenant, version.snapshot_id)
    proof_root = merkle_root([digest(body) for body in snapshot.facts])
    receipt_hash = digest(version.receipt)
    checks = [
        Check("Its passport is known and signed", True),
        Check(
            "The passport's text matches the hash in the QR code",
            base32(digest(version.payload)) == code[1],
        ),
        Check(
            f"The {len(snapshot.facts)} facts match the proof in the QR code",
            base32(proof_root) == code[2],
        ),
        Check("The receipt has the hash in the code", base32(receipt_hash) == code[3]),
        Check("Ed25519 signature of the receipt", is_signed(receipt_hash, signature)),
    ]
    failed = [index for index, check in enumerate(checks) if not check.holds]
    return checks[: failed[0] + 1] if failed else checks
