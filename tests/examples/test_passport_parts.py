"""The parts of the battery passport that do no I/O: documents, rules, compiler, code, exports."""

import hashlib
import io
from collections import Counter
from contextlib import suppress
from decimal import Decimal

import msgspec
import pytest
import segno
import zxingcpp
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from examples.battery_passport import exports, qr, rules
from examples.battery_passport.canonical import (
    base32,
    canonical,
    decimal_text,
    digest,
    merkle_root,
)
from examples.battery_passport.documents import LARGEST_DOCUMENT, Fact, Kind, kinds_missing, read
from examples.battery_passport.passport import (
    PassportVersion,
    Snapshot,
    compile_passport,
    snapshot_id_of,
)
from examples.battery_passport.rule_cases import cases_of
from examples.battery_passport.signed import Signed
from examples.battery_passport.signing import Signer, is_signed, signer_from
from gantline import Permanent
from tests.examples.passports import RECEIVED, SAMPLES, SIGNING_KEY, documents

SIGNER = Signer(b"0123456789abcdef0123456789abcdef")


def facts_of(sample: str) -> list[Fact]:
    return [fact for file in documents(sample) for fact in read(file.read_bytes()).facts]


def snapshot_of(sample: str, *, is_sealed: bool = True) -> Snapshot:
    facts = sorted(facts_of(sample), key=lambda fact: fact.hash)
    snapshot_id = snapshot_id_of([fact.hash for fact in facts])
    return Snapshot(snapshot_id, "S-1", RECEIVED, is_sealed, tuple(fact.body for fact in facts))


def compiled(sample: str = "nordcell-ev") -> PassportVersion:
    return compile_passport("aurora", snapshot_of(sample), rules.current_package())


def refusal(content: bytes) -> tuple[str, str]:
    with pytest.raises(Permanent) as refused:
        read(content)
    return refused.value.error_code, str(refused.value)


# -- canonical ------------------------------------------------------------------------------------


def test_canonical_json_is_one_text_whatever_the_order_and_refuses_floats() -> None:
    assert canonical({"b": 1, "a": ["ü", None]}) == canonical({"a": ["ü", None], "b": 1})
    assert canonical({"b": 1, "a": "ü"}) == '{"a":"ü","b":1}'.encode()
    with pytest.raises(TypeError, match="decimals"):
        canonical({"a": [{"b": 0.1}]})


@given(st.decimals(0, 10**9, places=6))
def test_a_quantity_has_one_text(number: Decimal) -> None:
    text = decimal_text(number)
    assert Decimal(text) == number
    assert text == decimal_text(Decimal(text)) == decimal_text(number * Decimal("1.0000"))


def test_the_proof_root_is_that_of_rfc_6962() -> None:
    leaves = [digest(bytes([number])) for number in range(5)]
    hashed = [hashlib.sha256(b"\0" + bytes.fromhex(leaf)).digest() for leaf in leaves]

    def node(left: bytes, right: bytes) -> bytes:
        return hashlib.sha256(b"\1" + left + right).digest()

    expected = node(node(node(*hashed[:2]), node(*hashed[2:4])), hashed[4])
    assert merkle_root(leaves) == expected.hex()
    assert merkle_root(leaves[:1]) == hashed[0].hex()
    assert merkle_root([]) == hashlib.sha256().hexdigest()


# -- documents ------------------------------------------------------------------------------------


def test_each_kind_of_document_is_read_from_its_format() -> None:
    found = {file.suffix: read(file.read_bytes()) for file in documents("nordcell-ev")}
    assert {suffix: reading.kind for suffix, reading in found.items()} == {
        ".csv": Kind.BOM,
        ".json": Kind.PCF,
        ".xml": Kind.DUE_DILIGENCE,
    }
    assert {reading.serial for reading in found.values()} == {"NC-EV82-000142"}
    kinds = Counter(fact.type for reading in found.values() for fact in reading.facts)
    assert kinds == {"MATERIAL": 11, "BATTERY": 1, "CARBON_STAGE": 4, "MINERAL": 4}
    assert kinds_missing([Kind.BOM]) == [Kind.PCF, Kind.DUE_DILIGENCE]


def test_numbers_and_texts_of_one_quantity_are_one_fact() -> None:
    text = (SAMPLES / "nordcell-ev-pcf.json").read_bytes()
    assert read(text) == read(text.replace(b"82.0", b'"82.00"').replace(b"21.4", b"2.14e1"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "of one battery"),
        (b"nonsense", "of one battery"),
        (b"battery,material,mass_kg,recycled_percent\nA-1,nickel,1,2\nB-1,nickel,1,2", "one"),
        (b"battery,material,mass_kg,recycled_percent\nA-1,nickel,-1,2", "no quantity"),
        (b"battery,material,mass_kg,recycled_percent\nA-1,nickel,NaN,2", "no quantity"),
        (b"battery,material,mass_kg,recycled_percent\nA-1,nickel,1,101", "no quantity"),
        (b"battery,material,mass_kg,recycled_percent\nA-1,x,1,2\nA-1,x,1,3", "one thing twice"),
        (b"\xff\xfe", "utf-8"),
        (b"{", "truncated"),
        (b'{"battery": {}, "stages": {}}', "missing"),
        (b"<dueDiligence", "unclosed"),
        (b"<other battery='A-1'/>", "not dueDiligence"),
        (b"<dueDiligence battery='A-1'/>", "says nothing"),
        (b"<dueDiligence battery='A-1'><mineral name='x'/></dueDiligence>", "missing"),
        ((SAMPLES / "hostile-due-diligence.xml").read_bytes(), "DTD or entities"),
    ],
)
def test_what_cannot_be_read_is_refused_for_good(content: bytes, why: str) -> None:
    code, message = refusal(content)
    assert code == "VALIDATION_ERROR"
    assert why in message


def test_a_document_that_is_too_large_is_not_looked_at() -> None:
    assert refusal(b"<" * (LARGEST_DOCUMENT + 1))[0] == "PAYLOAD_TOO_LARGE"


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(content: bytes) -> None:
    """Whatever comes is read or refused; nothing else is raised."""
    with suppress(Permanent):
        read(content)


# -- rules ----------------------------------------------------------------------------------------


def test_the_rule_package_has_more_than_500_cases_and_all_hold() -> None:
    cases = list(cases_of(rules.current_package()))
    assert len(cases) == len(set(cases)) >= 500
    assert {case.rule.id for case in cases} == {rule.id for rule in rules.RULES}
    assert [case for case in cases if not case.holds] == []


@pytest.mark.parametrize("number", range(len(rules.RULES)))
def test_the_cases_notice_a_rule_whose_comparison_is_turned_round(number: int) -> None:
    rule = rules.RULES[number]
    turned = msgspec.structs.replace(rule, comparison={"<=": ">=", ">=": "<="}[rule.comparison])
    package = rules.RulePackage("turned", (rule,))
    broken = [case._replace(rule=turned) for case in cases_of(package)]
    assert sum(not case.holds for case in broken) == 50


def test_a_rule_that_compares_what_is_no_number_says_so() -> None:
    rule = rules.Rule("X1", "colour", "colour", "<=", "1", "")
    with pytest.raises(Permanent) as refused:
        rules.judge(rule, {"colour": "red"})
    assert refused.value.error_code == "RULE_TYPE_ERROR"


def test_a_package_is_known_by_all_that_it_says() -> None:
    package = rules.current_package()
    assert rules.package_from(package.body) == package
    other = msgspec.structs.replace(package.rules[0], limit="2.1")
    changed = rules.RulePackage(package.name, (other, *package.rules[1:]))
    assert changed.rules_id != package.rules_id


# -- the compiler ---------------------------------------------------------------------------------


def test_of_the_same_snapshot_comes_the_same_passport_byte_for_byte() -> None:
    assert compiled() == compiled()
    assert compiled().payload == canonical(msgspec.json.decode(compiled().payload))


def test_another_tenant_instant_or_rule_is_another_version() -> None:
    snapshot, package = snapshot_of("nordcell-ev"), rules.current_package()
    later = msgspec.structs.replace(snapshot, issued_at="2027-01-01T00:00:00.000000Z")
    renamed = msgspec.structs.replace(package, name="other")
    versions = [
        compile_passport("aurora", snapshot, package),
        compile_passport("borealis", snapshot, package),
        compile_passport("aurora", later, package),
        compile_passport("aurora", snapshot, renamed),
    ]
    assert len({version.passport_version_id for version in versions}) == 4
    assert len({version.receipt_hash for version in versions}) == 4
    assert len({version.passport_id for version in versions}) == 2


def test_an_open_snapshot_is_not_compiled() -> None:
    with pytest.raises(Permanent) as refused:
        compile_passport(
            "aurora", snapshot_of("nordcell-ev", is_sealed=False), rules.current_package()
        )
    assert refused.value.error_code == "SNAPSHOT_NOT_READY"


def test_a_battery_that_breaks_rules_gets_no_passport_and_is_told_which() -> None:
    with pytest.raises(Permanent, match=r"R02 carbon footprint is 111\.5.*R03 recycled") as refused:
        compiled("oldpack")
    assert refused.value.error_code == "RULES_NOT_MET"


# -- the signature and the code -------------------------------------------------------------------


def test_a_signature_is_of_one_receipt_and_always_the_same() -> None:
    version = compiled()
    signature = SIGNER.sign(version.receipt_hash)
    assert signature == SIGNER.sign(version.receipt_hash)
    assert is_signed(version.receipt_hash, signature)
    assert not is_signed(digest(b"another"), signature)


@pytest.mark.parametrize("key", ["", "not base64!", "c2hvcnQ="])
def test_without_a_key_nothing_is_signed(key: str) -> None:
    receipt_hash = compiled().receipt_hash
    signer = signer_from({"PASSPORT_SIGNING_KEY": SIGNING_KEY})
    assert signer.sign(receipt_hash) == SIGNER.sign(receipt_hash)
    with pytest.raises(Permanent) as refused:
        signer_from({"PASSPORT_SIGNING_KEY": key})
    assert refused.value.error_code == "SIGNING_KEY_MISSING"


def scanned(png: bytes) -> str:
    (found,) = zxingcpp.read_barcodes(Image.open(io.BytesIO(png)).convert("L"))
    return found.text


@pytest.mark.parametrize("sample", ["nordcell-ev", "voltwerk-lmt"])
def test_a_scanner_reads_the_code_back_to_the_exact_text(sample: str) -> None:
    version = compiled(sample)
    text = str(qr.QrText.of(version))
    assert len(text) == 212
    assert text == (
        f"BPC1|pv={version.passport_version_id}|ph={base32(version.payload_hash)}"
        f"|pr={base32(version.proof_root)}|rh={base32(version.receipt_hash)}"
    )
    assert "=" not in base32(version.payload_hash)
    assert scanned(qr.qr_png(text)) == text
    assert qr.qr_png(text) == qr.qr_png(text)
    assert qr.QrText.read(text) == qr.QrText.of(version)


def test_the_code_has_level_m_modules_of_ten_pixels_and_a_quiet_zone_of_four() -> None:
    text = str(qr.QrText.of(compiled()))
    code = qr.qr_code(text)
    assert isinstance(code, segno.QRCode)
    assert (code.error, code.version) == ("M", 10)
    picture = Image.open(io.BytesIO(qr.qr_png(text))).convert("L")
    side = (17 + 4 * 10 + 2 * 4) * 10
    assert picture.size == (side, side)
    quiet = picture.crop((0, 0, side, 40))
    assert quiet.getextrema() == (255, 255)
    assert picture.getpixel((40, 40)) == 0


def test_the_code_is_read_when_it_is_printed_at_two_centimetres() -> None:
    """At 300 dpi that is 236 dots a side, and a module is not a whole number of them."""
    text = str(qr.QrText.of(compiled()))
    picture = Image.open(io.BytesIO(qr.qr_png(text))).convert("L")
    dots = int(20 / 25.4 * 300)
    printed = picture.resize((dots, dots), Image.Resampling.BOX).point(
        lambda dot: 255 * (dot > 127)
    )
    (found,) = zxingcpp.read_barcodes(printed)
    assert found.text == text


@pytest.mark.parametrize("text", ["", "BPC1", "BPC2|pv=x", "https://example.org"])
def test_what_is_no_code_of_ours_is_not_read(text: str) -> None:
    assert qr.QrText.read(text) is None


# -- exports --------------------------------------------------------------------------------------


def signed() -> Signed:
    version = compiled()
    return Signed(version, SIGNER.sign(version.receipt_hash), str(qr.QrText.of(version)))


def test_every_export_has_the_same_bytes_again() -> None:
    for make in exports.FORMATS.values():
        assert make(signed()) == make(signed())


def test_the_json_export_carries_its_own_proof() -> None:
    told = msgspec.json.decode(exports.as_json(signed()))
    assert digest(canonical(told["passport"])) == told["proof"]["receipt"]["payload_hash"]
    assert digest(canonical(told["proof"]["receipt"])) == told["proof"]["receipt_hash"]


def test_the_json_ld_export_names_its_vocabulary_itself() -> None:
    told = msgspec.json.decode(exports.as_json_ld(signed()))
    assert told["@id"] == f"urn:uuid:{compiled().passport_version_id}"
    assert told["@type"] == "BatteryPassport"
    assert isinstance(told["@context"], dict)


def test_the_pdf_is_dated_by_the_passport() -> None:
    pdf = exports.FORMATS["pdf"](signed())
    assert pdf.startswith(b"%PDF-")
    assert b"D:20261115120000" in pdf
