"""Rules for records and leadership: compare-and-set, expiry, one leader a term."""

from datetime import timedelta

from gantline.contract.records import RecordWrite
from gantline.contract.results import Applied, Conflict
from gantline.testing.conformance.bench import HOUR, LEASE, Bench
from gantline.testing.conformance.rule import rule

SPACE = "space"


async def put(
    bench: Bench,
    key: str,
    value: bytes,
    *,
    expected: int | None = None,
    time_to_live: timedelta | None = None,
) -> int | None:
    """Write a record; return its version, or None where the store refused."""
    write = RecordWrite(SPACE, key, value, expected, time_to_live)
    match await bench.store.write_records([write]):
        case [Applied(version)]:
            return version
        case [Conflict(by)]:
            assert by == f"{SPACE}/{key}"
    return None


async def values(bench: Bench, **options: str) -> dict[str, bytes]:
    return {
        record.key: record.value
        for record in await bench.store.read_records(SPACE, **options)  # type: ignore[arg-type]  # prefix and after are text
    }


@rule
async def a_record_is_versioned(bench: Bench) -> None:
    first = await put(bench, "a", b"1")
    second = await put(bench, "a", b"2")
    third = await put(bench, "a", b"3", expected=second)
    assert first is not None
    assert second is not None
    assert third is not None
    assert 0 < first < second < third
    for stale in (0, first, second, third + 1):
        assert await put(bench, "a", b"4", expected=stale) is None
    assert await put(bench, "b", b"x", expected=third) is None
    (record,) = await bench.store.read_records(SPACE)
    assert (record.value, record.version) == (b"3", third)


@rule
async def a_record_can_be_made_once(bench: Bench) -> None:
    assert await put(bench, "a", b"1", expected=0)
    assert await put(bench, "a", b"2", expected=0) is None


@rule
async def a_version_never_comes_again(bench: Bench) -> None:
    """Else a writer who slept through a deletion would overwrite what was made since."""
    seen = [await put(bench, "a", b"1"), await put(bench, "a", b"2", time_to_live=HOUR)]
    bench.clock.advance(HOUR)  # expired, and still in the store's way
    seen.append(await put(bench, "a", b"1", expected=0, time_to_live=HOUR))
    bench.clock.advance(HOUR)
    await bench.store.prune([], limit=10)
    seen.append(await put(bench, "a", b"1", expected=0))
    await bench.store.write_records([RecordWrite(SPACE, "a", None)])
    now = await put(bench, "a", b"1", expected=0)
    assert len({*seen, now}) == 5
    for stale in seen:
        assert await put(bench, "a", b"mine", expected=stale) is None
        gone = RecordWrite(SPACE, "a", None, expected=stale)
        assert await bench.store.write_records([gone]) == [Conflict(by="space/a")]
    assert await values(bench) == {"a": b"1"}


@rule
async def a_repeated_write_counts_as_applied(bench: Bench) -> None:
    made = await put(bench, "a", b"1", expected=0)
    assert await put(bench, "a", b"1", expected=0) == made
    changed = await put(bench, "a", b"2", expected=made)
    assert await put(bench, "a", b"2", expected=made) == changed
    gone = RecordWrite(SPACE, "a", None, expected=changed)
    for _ in range(2):
        assert await bench.store.write_records([gone]) == [Applied(0)]
    assert await values(bench) == {}


@rule
async def the_same_value_written_by_another_is_no_repeat(bench: Bench) -> None:
    first = await put(bench, "a", b"1")
    await put(bench, "a", b"2")
    await put(bench, "a", b"3")
    assert await put(bench, "a", b"3", expected=first) is None


@rule
async def an_expired_record_is_gone(bench: Bench) -> None:
    await bench.store.write_records([RecordWrite(SPACE, "a", b"1", time_to_live=HOUR)])
    bench.clock.advance(HOUR - timedelta(microseconds=1))
    assert await values(bench) == {"a": b"1"}
    bench.clock.advance(timedelta(microseconds=1))
    assert await values(bench) == {}
    assert (await bench.store.prune([], limit=10)).records == 1
    assert await put(bench, "a", b"2", expected=0)


@rule
async def a_record_stays_for_its_time(bench: Bench) -> None:
    """One that is written again has its new time, or none."""
    for key, time_to_live in (("short", HOUR), ("long", HOUR), ("ever", HOUR), ("once", 9 * HOUR)):
        await put(bench, key, b"1", time_to_live=time_to_live)
    await put(bench, "long", b"2", time_to_live=9 * HOUR)
    await put(bench, "ever", b"2")
    bench.clock.advance(2 * HOUR)
    assert (await bench.store.prune([], limit=10)).records == 1
    assert list(await values(bench)) == ["ever", "long", "once"]


@rule
async def expired_records_do_not_hide_those_after_them(bench: Bench) -> None:
    for key in ("a", "b", "c"):
        await put(bench, key, b"1", time_to_live=HOUR)
    await put(bench, "d", b"1")
    bench.clock.advance(HOUR)
    assert [one.key for one in await bench.store.read_records(SPACE, limit=2)] == ["d"]


@rule
async def a_record_that_may_live_for_no_time_is_gone_at_once(bench: Bench) -> None:
    """None is for ever; zero, which a caller may have reckoned, is not."""
    for span in (timedelta(0), -HOUR):
        kept = await put(bench, "a", b"1")
        assert await put(bench, "a", b"2", expected=kept, time_to_live=span) is not None
        assert await values(bench) == {}
        assert await put(bench, "a", b"3", expected=0)


@rule
async def a_few_records_get_their_versions_in_the_order_of_the_writes(bench: Bench) -> None:
    """Whether they are new or not, and whatever their keys."""
    await put(bench, "b", b"1")
    writes = [RecordWrite(SPACE, key, b"2") for key in ("c", "b", "a")]
    answers = await bench.store.write_records(writes)
    versions = [answer.version for answer in answers if isinstance(answer, Applied)]
    assert len(versions) == len(writes)
    assert versions == sorted(versions)


@rule
async def many_records_are_written_each_under_its_own_version(bench: Bench) -> None:
    """Answers come in the order of the writes, whatever the order of the keys."""
    old, now = await put(bench, "c", b"1"), await put(bench, "c", b"2")
    kept = await put(bench, "b", b"1")
    await put(bench, "e", b"1", time_to_live=HOUR)
    bench.clock.advance(HOUR)
    assert old is not None
    assert now is not None
    writes = [
        RecordWrite(SPACE, "f", b"new", 0),
        RecordWrite(SPACE, "c", b"late", old),
        RecordWrite(SPACE, "b", b"late", 0),
        RecordWrite(SPACE, "e", b"again", 0),
        RecordWrite(SPACE, "d", None, old),
        RecordWrite("other", "c", b"late", now),
        RecordWrite(SPACE, "a", b"whatever"),
    ]
    answers = await bench.store.write_records(writes)
    refused = [answer.by for answer in answers if isinstance(answer, Conflict)]
    assert refused == ["space/c", "space/b", "other/c"]
    assert answers[4] == Applied(0)
    stored = {one.key: one for one in await bench.store.read_records(SPACE)}
    assert {key: one.value for key, one in stored.items()} == {
        "a": b"whatever",
        "b": b"1",
        "c": b"2",
        "e": b"again",
        "f": b"new",
    }
    for index, key in ((0, "f"), (3, "e"), (6, "a")):
        assert answers[index] == Applied(stored[key].version)
    assert (stored["b"].version, stored["c"].version) == (kept, now)


@rule
async def a_write_sees_those_before_it_in_its_call(bench: Bench) -> None:
    answers = await bench.store.write_records(
        [
            RecordWrite(SPACE, "a", b"1", 0),
            RecordWrite(SPACE, "a", b"2", 0),
            RecordWrite(SPACE, "a", None),
            RecordWrite(SPACE, "a", b"3", 0),
        ]
    )
    assert [type(answer) for answer in answers] == [Applied, Conflict, Applied, Applied]
    assert await values(bench) == {"a": b"3"}


@rule
async def records_are_listed_by_prefix_in_order(bench: Bench) -> None:
    keys = ["b/2", "a/1", "b/1", "b%", "b_", "c", "B/3"]
    await bench.store.write_records([RecordWrite(SPACE, key, key.encode()) for key in keys])
    await bench.store.write_records([RecordWrite("other", "b/9", b"")])
    assert list(await values(bench, prefix="b/")) == ["b/1", "b/2"]
    assert list(await values(bench, prefix="b%")) == ["b%"]
    assert list(await values(bench, prefix="b/", after="b/1")) == ["b/2"]
    assert list(await values(bench)) == sorted(keys)
    assert len(await bench.store.read_records(SPACE, limit=2)) == 2


@rule
async def a_prefix_ends_where_the_next_begins(bench: Bench) -> None:
    """Whatever the last character of the prefix is, and wherever one reads on."""
    last = "\U0010ffff"
    keys = ["a", "a/", "a/1", "a0", "\ud7ff1", "\ue000", last, last + "1", last + last]
    await bench.store.write_records([RecordWrite(SPACE, key, b"") for key in keys])
    for prefix in ("", "a", "a/", "\ud7ff", last, last + last):
        begun = sorted(key for key in keys if key.startswith(prefix))
        assert list(await values(bench, prefix=prefix)) == begun
        assert list(await values(bench, prefix=prefix, after=begun[0])) == begun[1:]
        assert list(await values(bench, prefix=prefix, after=begun[-1])) == []
        assert list(await values(bench, prefix=prefix, after="A")) == begun


@rule
async def there_is_one_leader_at_a_time(bench: Bench) -> None:
    first = await bench.store.lead("role", "a", lease=LEASE)
    assert first is not None
    assert (first.term, first.until) == (1, bench.clock.now() + LEASE)
    assert await bench.store.lead("role", "b", lease=LEASE) is None
    other_role = await bench.store.lead("other", "b", lease=LEASE)
    assert other_role is not None


@rule
async def a_leader_who_extends_keeps_the_term(bench: Bench) -> None:
    await bench.store.lead("role", "a", lease=LEASE)
    bench.clock.advance(LEASE / 2)
    again = await bench.store.lead("role", "a", lease=LEASE)
    assert again is not None
    assert (again.term, again.until) == (1, bench.clock.now() + LEASE)


@rule
async def a_new_leader_has_a_new_term(bench: Bench) -> None:
    await bench.store.lead("role", "a", lease=LEASE)
    bench.clock.advance(LEASE)
    second = await bench.store.lead("role", "b", lease=LEASE)
    assert second is not None
    assert second.term == 2
    assert await bench.store.lead("role", "a", lease=LEASE) is None


@rule
async def a_leader_who_comes_back_late_has_a_new_term(bench: Bench) -> None:
    await bench.store.lead("role", "a", lease=LEASE)
    bench.clock.advance(2 * LEASE)
    again = await bench.store.lead("role", "a", lease=LEASE)
    assert again is not None
    assert again.term == 2


@rule
async def only_the_leader_of_the_term_can_resign(bench: Bench) -> None:
    await bench.store.lead("role", "a", lease=LEASE)
    await bench.store.resign("role", "b", 1)
    await bench.store.resign("role", "a", 7)
    await bench.store.resign("unknown", "a", 1)
    assert await bench.store.lead("role", "b", lease=LEASE) is None
    await bench.store.resign("role", "a", 1)
    second = await bench.store.lead("role", "b", lease=LEASE)
    assert second is not None
    assert second.term == 2
