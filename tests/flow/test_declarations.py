"""What a declaration says of groups and limits: what it becomes, and what is refused."""

import math
from typing import Any

import msgspec
import pytest

from gantline import Context, Gantline, Limit
from gantline.contract.errors import InvalidInput
from gantline.contract.flow import Gate, TypeFlow
from gantline.flow.limit import rate_text, read_rate
from gantline.testing import JobsTest

NAN = float("nan")


class Mail(msgspec.Struct):
    account_id: int
    to: str


def declared(**options: Any) -> Any:
    jobs = Gantline("memory://")

    @jobs.job("mail", **options)
    async def mail(mail: Mail, ctx: Context) -> None: ...

    return mail


# -- limits ---------------------------------------------------------------------------------------


def test_the_limits_of_a_type_are_one_of_each_kind() -> None:
    limits = [
        Limit(running=2),
        Limit(running=40, per="type"),
        Limit(rate="100/s", burst=20, gate="mail-api"),
    ]
    assert declared(limits=limits).flows == (
        TypeFlow(
            job_type="mail", running=2, running_in_all=40, gate=Gate("mail-api", 100.0, burst=20)
        ),
    )


def test_a_rate_without_a_gate_has_one_that_is_named_like_its_type() -> None:
    (flow,) = declared(limits=[Limit(rate="30/m")]).flows
    assert flow.gate == Gate("mail", 0.5, burst=1)


@pytest.mark.parametrize(("rate", "burst"), [("100/s", 10), ("10/s", 1), ("11/s", 2), ("1/d", 1)])
def test_a_burst_that_is_not_named_is_a_tenth_of_a_second(rate: str, burst: int) -> None:
    (flow,) = declared(limits=[Limit(rate=rate)]).flows
    assert flow.gate.burst == burst


def test_each_name_of_a_type_has_its_limits_and_they_share_a_gate() -> None:
    flows = declared(limits=[Limit(rate="1/s")], aliases=["letter"]).flows
    assert [(flow.job_type, flow.gate.name) for flow in flows] == [
        ("mail", "mail"),
        ("letter", "mail"),
    ]


def test_no_limits_and_none_declared_are_two_things() -> None:
    assert declared().flows is None
    assert declared(limits=None).flows is None
    assert declared(limits=[]).flows == (TypeFlow(job_type="mail"),)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"running": 0}, "running is 0. It must be a whole number from 1"),
        ({"running": -1}, "running is -1"),
        ({"running": NAN}, "running is nan"),
        ({"running": 1.5}, "running is 1.5"),
        ({"running": math.inf}, "running is inf"),
        ({"rate": "0/s"}, "nothing would ever run. Pause the type to stop it."),
        ({"rate": "0.0/s"}, "nothing would ever run"),
        ({"rate": "-1/s"}, "'-1/s' cannot be read. Write how many in a second"),
        ({"rate": "nan/s"}, "cannot be read"),
        ({"rate": "inf/s"}, "cannot be read"),
        ({"rate": "1e400/s"}, "cannot be read"),
        ({"rate": "100"}, "cannot be read"),
        ({"rate": "100/w"}, "cannot be read"),
        ({"rate": "\u0661/s"}, "cannot be read"),
        ({"rate": "100/s\n"}, "cannot be read"),
        ({"rate": ""}, "cannot be read"),
        ({"rate": 100}, "rate is 100. It must be text or None."),
        ({"rate": NAN}, "rate is nan"),
        ({"rate": "99999999/s"}, "above 1000000 a second"),
        ({"rate": "0.001/d"}, "less than one a year"),
        ({"rate": "1/d", "burst": 366}, "is there again after more than a year"),
        ({"rate": "1/s", "burst": 0}, "burst is 0"),
        ({"rate": "1/s", "burst": NAN}, "burst is nan"),
        ({"rate": "1/s", "gate": ""}, "gate is ''"),
        ({"rate": "1/s", "gate": "x" * 300}, "gate is"),
        ({"rate": "1/s", "per": "group"}, "A rate has no per"),
        ({"running": 1, "rate": "1/s"}, "Write two of them"),
        ({"running": 1, "burst": 2}, "has neither burst nor gate"),
        ({"running": 1, "gate": "x"}, "has neither burst nor gate"),
        ({"running": 1, "per": "tenant"}, "per is 'tenant'. It must be 'group' or 'type' or None."),
        ({}, "A limit limits nothing"),
        ({"runing": 1}, "Limit has no option 'runing'. Is 'running' meant?"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_where_it_is_written(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        Limit(**options)
    assert says in str(refused.value)
    assert f"{__file__}:" in str(refused.value)


@pytest.mark.parametrize(
    "limits",
    [
        [Limit(running=1), Limit(running=2, per="group")],
        [Limit(running=1, per="type"), Limit(running=2, per="type")],
        [Limit(rate="1/s", gate="a"), Limit(rate="1/s", gate="b")],
    ],
)
def test_two_limits_of_one_kind_are_refused(limits: list[Limit]) -> None:
    with pytest.raises(InvalidInput, match=r"has two limits of the kind .* Leave one of them out"):
        declared(limits=limits)


def test_what_is_no_limit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="limits is"):
        declared(limits=[2])


@pytest.mark.parametrize("text", ["100/s", "0.5/s", "10/m", "500/h", "50/d", "7/m", "0.25/d"])
def test_a_rate_is_shown_as_it_can_be_read(text: str) -> None:
    per_second = read_rate(text)
    assert read_rate(rate_text(per_second)) == pytest.approx(per_second, rel=1e-6)


@pytest.mark.parametrize("text", ["100/s", "10/m", "500/h", "50/d", "7/m"])
def test_a_rate_is_shown_in_the_unit_that_it_was_written_in(text: str) -> None:
    assert rate_text(read_rate(text)) == text


# -- groups ---------------------------------------------------------------------------------------


async def test_a_group_is_made_of_the_payload_unless_the_submit_names_one() -> None:
    jobs = Gantline("memory://")

    @jobs.job("mail", group="account-{account_id}")
    async def mail(mail: Mail, ctx: Context) -> None: ...

    @jobs.job("call", group=lambda mail: mail.to)
    async def call(mail: Mail, ctx: Context) -> None: ...

    @jobs.job("plain")
    async def plain(mail: Mail, ctx: Context) -> None: ...

    payload = Mail(7, "ann")
    async with JobsTest(jobs):
        assert mail.prepare(payload).job.group == "account-7"
        assert mail.prepare(payload, group="other").job.group == "other"
        assert mail.prepare(payload, group="").job.group == ""
        assert call.prepare(payload).job.group == "ann"
        assert plain.prepare(payload).job.group == ""
        assert plain.prepare(payload, group="other").job.group == "other"


async def test_a_follow_up_has_the_group_of_its_own_type() -> None:
    jobs = Gantline("memory://")

    @jobs.job("mail", group="{account_id}")
    async def mail(mail: Mail, ctx: Context) -> None:
        ctx.follow_up(note, Mail(8, "bob"))
        ctx.follow_up(plain, Mail(8, "bob"))

    @jobs.job("note", group="{to}")
    async def note(mail: Mail, ctx: Context) -> None: ...

    @jobs.job("plain")
    async def plain(mail: Mail, ctx: Context) -> None: ...

    async with JobsTest(jobs) as kit:
        await mail.submit(Mail(7, "ann"))
        await kit.drain()
        groups = {
            job.status.job.job_type: job.status.job.group
            for kind in (mail, note, plain)
            for job in (await kit.submitted(kind)).all
        }
        assert groups == {"mail": "7", "note": "bob", "plain": ""}


@pytest.mark.parametrize(
    ("group", "says"),
    [
        ("imports", "names no field, so all jobs of the type would be one group. Name one"),
        ("{{x}}", "names no field"),
        ("{account}", "which the payload has not"),
        ("{account_id.x}", "plain field names only"),
        ("{", "cannot be read"),
    ],
)
def test_a_group_that_cannot_be_made_is_refused(group: str, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        declared(group=group)
    assert says in str(refused.value)


@pytest.mark.parametrize("group", ["x" * 257, "a\0b", "a\ud800"])
async def test_a_group_that_no_store_can_hold_is_refused(group: str) -> None:
    jobs = Gantline("memory://")

    @jobs.job("mail", group="{to}")
    async def mail(mail: Mail, ctx: Context) -> None: ...

    async with JobsTest(jobs):
        mail.prepare(Mail(1, "x" * 256))
        with pytest.raises(InvalidInput, match="#/group"):
            mail.prepare(Mail(1, ""), group=group)
