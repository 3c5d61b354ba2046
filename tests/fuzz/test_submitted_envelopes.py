"""submit_envelope: anything is a job that is stored, or InvalidInput; its warnings are harmless."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantline import Gantline, Handle, SubmitConflict
from gantline.contract.envelope import MEMBERS
from gantline.contract.errors import InvalidInput
from gantline.contract.job import check_job, read_job
from tests.fuzz.effort import effort
from tests.fuzz.limits import in_bounds, in_time
from tests.fuzz.mutation import documents, with_each_edge
from tests.fuzz.test_envelopes import CORPUS, LARGE, WHOLE, plain

STRANGE: Final = {"partitionKey": "p", "$type": {"a": [1]}, "\x1b[31m": None, "delaySeconds": 1}
UNTIMED: Final = {name: one for name, one in WHOLE.items() if name != "scheduledAt"}
SENT: Final = (*CORPUS, UNTIMED | STRANGE)


class Desk:
    """Hands envelopes in, and looks at what became of them."""

    def __init__(self, runner: asyncio.Runner, jobs: Gantline) -> None:
        self._run = runner.run
        self._jobs = jobs

    def submit(self, envelope: Any) -> bool:
        """Whether it was accepted."""
        try:
            handle: Handle[Any] = self._run(self._jobs.submit_envelope(envelope))
        except (InvalidInput, SubmitConflict):
            return False
        job = self._run(self._stored(handle))
        check_job(job)
        assert read_job(job.to_json()) == job
        assert len(handle.warnings) <= 21
        for pointer, detail in handle.warnings:
            assert len(pointer) <= 130, "each ~ and / is two characters"
            assert f"{pointer}{detail}".isprintable()
        return True

    async def _stored(self, handle: Handle[Any]) -> Any:
        found = await self._jobs.store.get([handle.job_id], tenant_id=None)
        assert found[0] is not None
        return found[0].job


@pytest.fixture
def desk(runner: asyncio.Runner) -> Iterator[Desk]:
    jobs = Gantline("memory://")

    @jobs.job("mail")
    async def mail(payload: Any) -> None: ...

    runner.run(jobs.open())
    yield Desk(runner, jobs)
    runner.run(jobs.close())


@given(content=documents(SENT))
@effort(600)
def test_any_document_is_a_job_or_invalid_input(desk: Desk, content: bytes) -> None:
    with in_time():
        desk.submit(content)


@given(content=st.binary(max_size=200) | st.text(max_size=100))
@effort(150)
def test_bytes_and_texts_of_any_kind_are_invalid_input(desk: Desk, content: bytes | str) -> None:
    with in_time():
        desk.submit(content)


@pytest.mark.parametrize("field", sorted(MEMBERS))
def test_no_member_is_troubled_by_an_edge_of_json(desk: Desk, field: str) -> None:
    for content in with_each_edge({**UNTIMED, "jobType": "mail"}, field):
        with in_time():
            desk.submit(content)


@pytest.mark.parametrize("name", LARGE)
def test_a_large_envelope_takes_bounded_time_and_memory(desk: Desk, name: str) -> None:
    with in_bounds(len(LARGE[name])):
        desk.submit(LARGE[name])


members = st.sampled_from(sorted(MEMBERS))
strangers = st.text(st.characters(), max_size=80) | st.integers() | st.none()


@given(envelope=st.dictionaries(members | strangers, plain, max_size=6))
@effort(400)
def test_a_dict_of_anything_is_a_job_or_invalid_input(desk: Desk, envelope: dict[Any, Any]) -> None:
    with in_time():
        desk.submit({"jobType": "mail", **envelope})


def test_the_corpus_is_accepted(desk: Desk) -> None:
    """Or nothing above would look at a warning."""
    assert [desk.submit(one) for one in SENT] == [True] * len(SENT)
