"""Mutation: from valid inputs to broken ones, of bytes and of JSON documents."""

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

from hypothesis import note
from hypothesis import strategies as st

LONG: Final = b'"' + b"x" * 3000 + b'"'
# Written as they are where a value was: what JSON has at its edges, and what it does not have.
EDGES: Final[tuple[bytes, ...]] = (
    *(b"null", b"true", b"false", b"{}", b"[]", b'""', b'" "', b'"\\u0000"', b'"a\\nb"', LONG),
    *(b"0", b"-0", b"-0.0", b"1", b"-1", b"1.0", b"0.5", b"1e3", b"4", b"1000", b"1001", b"1e-400"),
    *(b"2147483647", b"2147483648", b"-2147483649", b"9007199254740993", b"9223372036854775807"),
    *(b"9223372036854775808", b"18446744073709551616", b"1e300", b"1e308", b"1e309", b"-1e999"),
    *(b"1" + b"0" * 400, b"1" + b"0" * 4400, b'"' + b"9" * 4400 + b'"', b"0." + b"1" * 500),
    *(b"NaN", b"Infinity", b"-Infinity", b"01", b"+1", b"1.", b".5", b"1e", b"0x10", b"nan"),
    *(b'"nan"', b'"inf"', b'"1"', b'"1.0"', b'"true"', b'"null"', b'"-1"', b'"1e300"'),
    *(b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"', b'"\xed\xa0\x80"', b'"\xff"'),
    *(b'"\xc0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x80\xa8"', b'"\xc2\x85"', b'"\xef\xbb\xbf"'),
    *(b'"2026-01-01T00:00:00Z"', b'"2026-01-01T00:00:00"', b'"2026-01-01"', b'"infinity"'),
    *(b'"0001-01-01T00:00:00Z"', b'"0001-01-01T00:00:00+23:59"', b'"0000-01-01T00:00:00Z"'),
    *(b'"9999-12-31T23:59:59.999999Z"', b'"9999-12-31T23:59:59-23:59"', b'"10000-01-01T00:00:00Z"'),
    *(b'"2026-02-30T00:00:00Z"', b'"2026-06-30T23:59:60Z"', b'"1970-01-01T00:00:00.0000001Z"'),
    *(b'"-4713-01-01"', b'"294276-12-31"', b'"now"', b'"P1D"', b'"PT1H"', b'"P999999999999D"'),
    *(b"253402300799", b"253402300799.9999999", b"253402300800", b"-62135596800", b"-62135596801"),
    *(b'"00000000-0000-0000-0000-000000000001"', b'"00000000000000000000000000000001"'),
    *(b'"{00000000-0000-0000-0000-000000000001}"', b'"urn:uuid:00000000"', b'"' + b"f" * 36 + b'"'),
    *(b"[" * 60 + b"]" * 60, b"[" * 70 + b"]" * 70, b'{"a":' * 70 + b"1" + b"}" * 70),
    *(b"[" * 2000 + b"]" * 2000, b"[" * 2000, b'{"a":' * 2000, b'{"a":1,"a":2}', b'{"":{"":""}}'),
    *(b'{" - at `$": 1}', b'{"~0/~1": 1}', b'"../passwd"', b'"%00"', b'"{}"', b'"{0.__class__}"'),
)
# fmt: off
TEXTS: Final = (
    *("", " ", "\n", "\r\n", "a\nb", "\x00", "\x1f", "\x7f", "\x85", "\u2028", "\ufeff", "\ud800"),
    *("\udfff", "\U0010ffff", "é", "\U0001d7d9", "²", "\u0661", "%", "%%", "%00", "%ff", "+", "&"),
    *("=", ";", ",", ":", "/", ".", "..", "*", "?", "#", "[", "]", "{", "}", "{}", "{0}", "`", "$"),
    *("~", "'", '"', "\\", "\\u0000", "-1", "0", "1", "nan", "inf", "1e400", "true", "null"),
    *("0x10", "1_000", "a" * 300, "9" * 25, "9" * 4400, " - at `$" * 20, "`key` in `$"),
)
# fmt: on
"""Parts of texts that are special to somebody."""

# fmt: off
_TOKENS: Final = (
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\\u", b"\\ud800", b"\x00", b"\xff"),
    *(b"\xef\xbb\xbf", b"NaN", b"e999", b"-", b".", b"0" * 50, b"9" * 50, b"\r\n", b"/*", b"'"),
)
# fmt: on


class Raw:
    """Bytes that are written into a JSON document as they are."""

    def __init__(self, text: bytes) -> None:
        self.text = text


def mutated_bytes(random: Random, content: bytes) -> bytes:
    """Change a few bytes, tokens or slices."""
    for _ in range(random.randint(1, 4)):
        at, end = sorted((random.randint(0, len(content)), random.randint(0, len(content))))
        match random.randrange(8):
            case 0:
                content = content[:at] + bytes([random.randrange(256)]) + content[at + 1 :]
            case 1:
                content = content[:at] + random.choice(_TOKENS) + content[at:]
            case 2:
                content = content[:at] + content[end:]
            case 3:
                content = content[: random.choice((at, end))]
            case 4:
                part = content[at : min(end, at + 50)]
                content = content[:at] + part * random.choice((2, 3, 64, 500)) + content[end:]
            case 5:
                content = content[:at] + random.choice(EDGES) + content[end:]
            case 6:
                content = content[:at] + random.randbytes(random.randint(1, 8)) + content[at:]
            case _:
                content = content[:at] + content[at:end][::-1] + content[end:]
    return content


def mutated_json(random: Random, document: Any) -> bytes:
    """Replace, remove, add, repeat and nest values of a document, then write it."""
    document = json.loads(json.dumps(document))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        document = _changed(random, document)
    text = written(document)
    return mutated_bytes(random, text) if random.random() < 0.1 else text


def _changed(random: Random, value: Any) -> Any:
    """Go down to some value of a document, and change that."""
    if isinstance(value, (dict, list)) and value and random.random() < 0.85:
        if isinstance(value, list):
            index = random.randrange(len(value))
            rest = [] if random.random() < 0.1 else [_changed(random, value[index])]
            return value[:index] + rest * random.choice((1, 1, 1, 2, 50)) + value[index + 1 :]
        key = random.choice(list(value))
        match random.randrange(8):
            case 0:
                return {name: one for name, one in value.items() if name != key}
            case 1:
                return value | {_text(random): Raw(random.choice(EDGES))}
            case 2:
                return _Doubled(value, key, Raw(random.choice(EDGES)))
            case _:
                return value | {key: _changed(random, value[key])}
    if isinstance(value, str) and random.random() < 0.5:
        return Raw(b'"' + _inside(_text(random, value)) + b'"')
    if type(value) is int and random.random() < 0.3:
        return value + random.choice((-1, 1, 2**31, 2**63, 2**64, -(2**63)))
    return Raw(random.choice(EDGES))


def with_each_edge(document: dict[str, Any], field: str) -> Iterator[bytes]:
    """Documents of which one field is an edge of JSON."""
    for edge in EDGES:
        yield written(document | {field: Raw(edge)})


class _Doubled(dict[str, Any]):
    """An object that has one of its keys twice."""

    def __init__(self, value: dict[str, Any], key: str, again: Any) -> None:
        super().__init__(value)
        self.again = (key, again)


def written(value: Any) -> bytes:
    """Write a document that may have raw parts."""
    match value:
        case Raw():
            return value.text
        case dict():
            pairs = [*value.items(), *([value.again] if isinstance(value, _Doubled) else [])]
            inside = (b'"%b":%b' % (_inside(name), written(one)) for name, one in pairs)
            return b"{" + b",".join(inside) + b"}"
        case list():
            return b"[" + b",".join(map(written, value)) + b"]"
        case _:
            return json.dumps(value).encode()


def _inside(text: str) -> bytes:
    """A text within its quotes."""
    return json.dumps(text)[1:-1].encode()


def _text(random: Random, text: str = "") -> str:
    at = random.randint(0, len(text))
    return text[:at] + random.choice(TEXTS) * random.choice((1, 1, 1, 2, 40)) + text[at:]


def mutated_text(random: Random, text: str) -> str:
    """Change a few characters or slices of a text."""
    for _ in range(random.randint(1, 3)):
        at, end = sorted((random.randint(0, len(text)), random.randint(0, len(text))))
        match random.randrange(5):
            case 0:
                text = text[:at] + random.choice(TEXTS) + text[at:]
            case 1:
                text = text[:at] + text[end:]
            case 2:
                text = text[:at] + text[at:end] * random.choice((2, 3, 30)) + text[end:]
            case 3:
                text = (
                    text[:at]
                    + chr(random.choice((random.randrange(128), 0xD800, 0x10FFFF)))
                    + (text[at + 1 :])
                )
            case _:
                text = text[:at] + random.choice(TEXTS) + text[end:]
    return text


def seeded(make: Callable[[Random], Any]) -> st.SearchStrategy[Any]:
    """What a function makes of a seed; shown as it was made where a test fails."""

    def shown(seed: int) -> Any:
        made = make(Random(seed))
        note(f"made: {made!r}")
        return made

    return st.integers(0, 2**64 - 1).map(shown)


def documents(corpus: Sequence[Any]) -> st.SearchStrategy[bytes]:
    """Mutated JSON texts: of documents, and now and then of their bytes."""

    def make(random: Random) -> bytes:
        document = random.choice(corpus)
        if random.random() < 0.25:
            return mutated_bytes(random, json.dumps(document).encode())
        return mutated_json(random, document)

    return seeded(make)


def texts(corpus: Sequence[str]) -> st.SearchStrategy[str]:
    """Mutated texts, and any others."""
    of_corpus = seeded(lambda random: mutated_text(random, random.choice(corpus)))
    return of_corpus | st.text(st.characters(), max_size=40) | st.sampled_from([*corpus, *TEXTS])
