"""Templates: any text is one or is refused, and any payload gives a text or is refused."""

from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantline import Gantline
from gantline.app.template import compile_template
from gantline.contract.errors import InvalidInput
from tests.fuzz.effort import effort
from tests.fuzz.limits import in_bounds, in_time
from tests.fuzz.mutation import documents, texts


class Row(msgspec.Struct, rename="camel"):
    document_id: str = "d"
    row_version: int = 1
    weight: float = 1.0
    rest: Any = None


FIELDS: Final = frozenset({"document_id", "row_version", "weight", "rest"})
CORPUS: Final = (
    *("doc-{document_id}-v{row_version}", "{document_id}", "", "constant", "{{}}", "{rest}"),
    *("{document_id.__class__}", "{document_id[0]}", "{row_version:>9999999999}", "{weight!r}"),
    *("{0}", "{}", "{ document_id }", "{document_id", "}", "{document_id:{row_version}}"),
)


@given(texts(CORPUS), st.builds(Row, rest=st.text(st.characters()) | st.integers() | st.floats()))
@effort(500)
def test_any_template_is_refused_or_gives_a_text(template: str, row: Row) -> None:
    with in_time():
        try:
            made = compile_template(template, FIELDS)
        except InvalidInput:
            return
        text = made(row)
        assert isinstance(text, str)
        assert len(text) <= len(template) + template.count("{") * 400


@pytest.mark.parametrize(
    "part", ["{", "}", "{{", "{}", "{document_id}", "{a", "{a:", "{a:{b}}", "!"]
)
def test_a_long_template_takes_bounded_time_and_memory(part: str) -> None:
    template = part * (100_000 // len(part))
    with in_bounds(len(template)):
        try:
            compile_template(template, FIELDS)(Row())
        except InvalidInput:
            return


def job_type() -> Any:
    jobs = Gantline("memory://")

    @jobs.job("row", subject="{rest}", idempotency_key="{document_id}-{row_version}-{weight}")
    async def row(payload: Row) -> None: ...

    return row


ROW: Final = job_type()
ROWS: Final = ({"documentId": "d", "rowVersion": 7, "weight": 2.5, "rest": {"a": [1]}},)


@given(documents(ROWS))
@effort(500)
def test_any_payload_gives_a_job_or_invalid_input(content: bytes) -> None:
    """As a client sends it: decoded by its type, then made a job with a subject and a key."""
    with in_time():
        try:
            payload = ROW.handler.codec.decode(content)
            new = ROW.prepare(payload)
        except InvalidInput:
            return
        assert new.job.idempotency_key.startswith(payload.document_id)
        assert len(new.job.subject_id) <= 512


rests = st.recursive(
    st.builds(pow, st.just(10), st.sampled_from([1, 400, 4300, 4400]))
    | st.floats()
    | st.text(st.characters()),
    lambda some: st.lists(some) | st.dictionaries(st.text(), some),
    max_leaves=5,
)


@given(st.builds(Row, row_version=st.integers() | rests, weight=st.floats() | rests, rest=rests))
@effort(150)
def test_any_payload_of_python_gives_a_job_or_invalid_input(row: Row) -> None:
    with in_time():
        try:
            ROW.prepare(row)
        except InvalidInput:
            return
