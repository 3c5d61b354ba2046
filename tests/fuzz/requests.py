"""Requests: each operation of the API with a path, a query, headers and a body, then mutated."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_from_bytes

import msgspec

from gantline.api.operation import Operation
from tests.fuzz.mutation import EDGES, TEXTS, mutated_bytes, mutated_json, mutated_text, written

JOB: Final[dict[str, Any]] = {
    "jobType": "document-indexing",
    "payload": {"documentId": "d", "rowVersion": 3, "flags": ["a"]},
    "jobId": "00000000-0000-0000-0000-0000000000aa",
    "subjectId": "s",
    "correlationId": "c",
    "idempotencyKey": "k",
    "attempt": 1,
    "maxAttempts": 5,
    "createdAt": "2026-01-01T00:00:00Z",
    "tenantId": "acme",
    "queue": "documents",
    "priority": 3,
    "delaySeconds": 5.0,
    "payloadVersion": 1,
    "traceContext": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
}
SWEEP: Final[dict[str, Any]] = {"jobType": "sweep", "scheduledAt": "2030-01-01T00:00:00+01:00"}
MAIL: Final[dict[str, Any]] = {"jobType": "mail", "payload": "a@example.org"}
SCHEDULE: Final[dict[str, Any]] = {
    "name": "nightly",
    "jobType": "document-indexing",
    "payload": {"documentId": "d"},
    "cron": "0 3 * * MON-FRI",
    "timezone": "Europe/Berlin",
    "start": "2026-01-01T00:00:00Z",
    "end": "2031-01-01T00:00:00Z",
    "jitterSeconds": 10.0,
    "misfire": "catch_up",
    "catchUpLimit": 3,
    "graceSeconds": 30.0,
    "overlap": "skip",
    "subjectId": "s",
    "priority": 3,
    "maxAttempts": 2,
}
EVERY: Final[dict[str, Any]] = {
    "name": "often",
    "jobType": "sweep",
    "everySeconds": 90.5,
    "anchor": "2026-01-01T00:00:00Z",
}
WEBHOOK: Final[dict[str, Any]] = {
    "url": "https://example.org/hook?a=b",
    "description": "d",
    "eventTypes": ["job.*"],
    "jobTypes": ["mail"],
    "format": "cloudevents",
    "headerPrefix": "X-Shop",
    "timeoutSeconds": 5.5,
    "concurrency": 2,
    "retrySeconds": [1.0, 60.0],
}
REDRIVE: Final[dict[str, Any]] = {
    "jobTypes": ["mail"],
    "reasons": ["Permanent"],
    "subjectId": "s",
    "createdFrom": "2026-01-01T00:00:00Z",
    "limit": 10,
    "dryRun": True,
}
REPLAY: Final[dict[str, Any]] = {"since": "2026-01-01T00:00:00Z", "limit": 10, "dryRun": True}
BODIES: Final[Mapping[str, Sequence[dict[str, Any]]]] = {
    "submitJob": (JOB, SWEEP, MAIL),
    "submitBatch": ({"jobs": [JOB, SWEEP, MAIL]},),
    "redriveEdited": ({"payload": {"documentId": "e"}, "queue": "q", "delaySeconds": 1.0},),
    "redriveDeadLetters": (REDRIVE, {"jobIds": [JOB["jobId"]]}, {"all": True}),
    "capQueue": ({"maxDepth": 7}, {"maxDepth": None}),
    "setLimits": ({"running": 7, "rate": "5/s", "burst": 2, "gate": "g"}, {"runningInAll": None}),
    "createWebhook": (WEBHOOK,),
    "updateWebhook": (WEBHOOK,),
    "replayDeliveries": (REPLAY, {}),
    "createSchedule": (SCHEDULE, EVERY),
    "replaceSchedule": tuple(
        {name: one for name, one in sent.items() if name != "name"} for sent in (SCHEDULE, EVERY)
    ),
}
QUERY_VALUES: Final = (
    *("mail", "acme", "documents", "Failed", "failed", "1", "0", "200", "-1", "1001", "true"),
    *("2026-01-01T00:00:00Z", "2026-01-01T00:00:00+00:00", "0001-01-01T00:00:00+23:59", "d1"),
    *("00000000-0000-0000-0000-0000000000aa", "AXByb2R1Y3Q", "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
)
HEADERS: Final[Mapping[bytes, Sequence[bytes]]] = {
    b"x-correlation-id": (b"c-1",),
    b"idempotency-key": (b'"k-1"', b"k-2", b'"a\\"b"', b'"' + b"\\\\" * 200 + b'"'),
    b"if-match": (b'"1"', b"*", b'W/"1", "2"', b'"1-queued"'),
    b"if-none-match": (b'"1"', b"*", b'W/"1"'),
    b"prefer": (b"wait=1", b"respond-async, wait=5; a=b", b'wait="3"', b"wait=999999999999"),
    b"last-event-id": (b"7", b"18446744073709551616", b"x"),
    b"traceparent": (b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",),
    b"tracestate": (b"a=1,b=2",),
    b"x-async-request-id": (b"00000000-0000-0000-0000-0000000000bb",),
    b"content-type": (b"application/json; charset=utf-8", b"text/plain", b"application/json;"),
    b"content-length": (b"0", b"9" * 30, b"9" * 5000, b"-1", b"1e3", b"\xb2"),
    b"content-encoding": (b"identity", b"gzip"),
    b"cookie": (b"a=b; c=d", b'a="\\"; b', b"=;=;="),
    b"origin": (b"null", b"https://elsewhere.example"),
    b"sec-fetch-site": (b"cross-site", b"same-origin"),
    b"host": (b"api.test", b"[::1]:80", b""),
    b"authorization": (b"Bearer", b"Bearer ", b"Basic eDp5", b"bearer admin", b"Bearer a b"),
    b"x-api-key": (b"gl_x",),
    b"accept": (b"text/event-stream", b"*/*"),
    b"x-forwarded-for": (b"1.2.3.4, x",),
}


class Sent(NamedTuple):
    """A request as an ASGI server passes it on."""

    operation: str
    method: str
    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @property
    def size(self) -> int:
        of_headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.path) + len(self.query) + of_headers + len(self.body)


class Requests:
    """Makes requests of operations; `values` are those of paths that lead somewhere."""

    def __init__(
        self,
        operations: Sequence[Operation],
        values: Mapping[str, Sequence[str]],
        callers: Sequence[str],
    ) -> None:
        self._operations = operations
        self._values = values
        self._callers = callers

    def make(self, random: Random) -> Sent:
        operation = random.choice(self._operations)
        # One part is mutated, so that the others are read; now and then all of them.
        part = random.choice(("body", "body", "query", "headers", "path", "all"))
        is_changed = {name: part in (name, "all") for name in ("body", "query", "headers", "path")}
        return Sent(
            operation.name,
            operation.method,
            self._path(random, operation.path, is_changed=is_changed["path"]),
            _query(random, operation, is_changed=is_changed["query"]),
            self._headers(random, is_changed=is_changed["headers"]),
            _body(random, operation, is_changed=is_changed["body"]),
        )

    def _path(self, random: Random, path: str, *, is_changed: bool) -> str:
        parts = []
        for part in path.split("/"):
            if not part.startswith("{"):
                parts.append(part)
                continue
            value = random.choice(self._values[part.strip("{}").partition(":")[0]])
            parts.append(mutated_text(random, value) if is_changed else value)
        # A server decodes a path as UTF-8; what cannot be that never gets here.
        return "/".join(parts).encode(errors="replace").decode()

    def _headers(self, random: Random, *, is_changed: bool) -> tuple[tuple[bytes, bytes], ...]:
        caller = random.choice(self._callers)
        headers = [(b"host", b"api.test"), (b"content-type", b"application/json")]
        headers.append((b"authorization", f"Bearer {caller}".encode()))
        if not is_changed:
            return tuple(headers)
        for name in random.sample(list(HEADERS), random.randint(1, 4)):
            value = random.choice(HEADERS[name])
            if random.random() < 0.5:
                value = mutated_bytes(random, value)
            if random.random() < 0.8:
                headers = [one for one in headers if one[0] != name]
            headers.append((name, value))
        return tuple(headers)


def _query(random: Random, operation: Operation, *, is_changed: bool) -> bytes:
    names = [one.encode_name for one in msgspec.structs.fields(operation.query)]
    if not is_changed or (not names and random.random() < 0.7):
        return b""
    pairs = []
    for _ in range(random.choice((1, 1, 2, 5))):
        name = random.choice([*names, "unknown"])
        value = random.choice(QUERY_VALUES)
        match random.randrange(4):
            case 0:
                value = quote(mutated_text(random, value).encode(errors="replace"))
            case 1:
                value = quote_from_bytes(random.choice(EDGES).strip(b'"'))
            case 2:
                value = quote(random.choice(TEXTS).encode(errors="replace"))
            case _:
                value = quote(value)
        pairs += [f"{name}={value}"] * random.choice((1, 1, 1, 2, 120))
    query = "&".join(pairs).encode()
    return mutated_bytes(random, query) if random.random() < 0.2 else query


def _body(random: Random, operation: Operation, *, is_changed: bool) -> bytes:
    if (documents := BODIES.get(operation.name)) is None:
        return random.choice((b"", b"", b"{}", b"\x00"))
    document = random.choice(documents)
    if not is_changed:
        return written(document)
    if random.random() < 0.15:
        return mutated_bytes(random, written(document))
    return mutated_json(random, document)
