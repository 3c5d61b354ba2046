"""The jobs: what is done with documents, apart from the HTTP side.

A job knows a document by its id and reads it with the rights of the user who submitted the job:
what that user may no longer read, it does not read either. Nothing of a text is in a payload, a
result, an error or a log, which many people read. What was found out is kept with the document, in
the transaction that completes the job.
"""

import asyncio
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from examples.document_processing import text as texts
from examples.document_processing.documents import Documents, Texts, keep_finding, keep_redacted
from gantline import Context, JobGroup, Permanent, Snooze
from gantline.errors import HandlerSignal

jobs_of_documents = JobGroup(queue="documents")

# So that the page gets a job from its first moment on, whichever user submitted it.
_EVENTS: Final = ("submitted", "started", "progressed")


class Shared(msgspec.Struct):
    """What handlers share: `ctx.state`."""

    documents: Documents
    pace_seconds: float = 0.0
    """How long each step takes at least, so that people can follow."""


class Document(msgspec.Struct, rename="camel"):
    document_id: UUID  # a type in which nothing but an id fits
    row_version: int = 1


class Analysis(msgspec.Struct, rename="camel"):
    document_id: UUID
    type: Literal["statistics", "summary"]


@jobs_of_documents.job(
    "document-processing",
    subject="{document_id}",
    idempotency_key="doc-{document_id}-v{row_version}",
    timeout=timedelta(minutes=5),
    events=_EVENTS,
)
async def process(document: Document, ctx: Context) -> dict[str, int]:
    """Hide the personal data of a document, paragraph by paragraph."""
    paragraphs = _read(document.document_id, ctx).original.split("\n\n")
    redacted: list[str] = []
    hidden: Counter[str] = Counter()
    for done, paragraph in enumerate(paragraphs):
        await _step(ctx, 100 * done / len(paragraphs), "hiding personal data")
        with _quoting_nothing():
            found = await asyncio.to_thread(texts.redact, paragraph)
        redacted.append(found.text)
        hidden += found.hidden
    ctx.follow_up(index, document)
    summary = {"hidden": hidden.total()}
    async with ctx.transaction(result=summary) as connection:
        keep_redacted(connection, document.document_id, "\n\n".join(redacted), hidden.total())
    return summary


@jobs_of_documents.job(
    "ai-indexing",
    subject="{document_id}",
    idempotency_key="doc-{document_id}-v{row_version}",
    events=_EVENTS,
)
async def index(document: Document, ctx: Context) -> dict[str, Any]:
    """Find the words by which a document should be found."""
    text = _processed(document.document_id, ctx)
    await _step(ctx, 10, "reading")
    with _quoting_nothing():
        words = texts.words_of(text)
        language = texts.language_of(words)
        keywords = texts.keywords_of(words, language)
    await _step(ctx, 80, "finding keywords")
    summary = {"language": language, "keywords": len(keywords)}
    async with ctx.transaction(result=summary) as connection:
        body = {"language": language, "keywords": keywords}
        keep_finding(connection, document.document_id, "index", body)
    return summary


@jobs_of_documents.job(
    "ai-analyze",
    subject="{document_id}",
    idempotency_key="analysis-{document_id}-{type}",
    events=_EVENTS,
)
async def analyze(analysis: Analysis, ctx: Context) -> dict[str, int]:
    """Count, or sum up, what a document says."""
    text = _processed(analysis.document_id, ctx)
    await _step(ctx, 20, "reading")
    with _quoting_nothing():
        words, sentences = texts.words_of(text), texts.sentences_of(text)
        numbers = {"words": len(words), "sentences": len(sentences)}
        body: dict[str, Any] = {**numbers, "minutes": max(1, round(len(words) / 200))}
        if analysis.type == "summary":
            await _step(ctx, 60, "summing up")
            body = {"text": texts.summary_of(text, texts.language_of(words))}
    await _step(ctx, 90, "writing it down")
    async with ctx.transaction(result=numbers) as connection:
        keep_finding(connection, analysis.document_id, analysis.type, body)
    return numbers


def _read(document_id: UUID, ctx: Context) -> Texts:
    found: Texts | None = ctx.state.documents.read(document_id, reader=ctx.job.created_by)
    if found is None:
        raise Permanent("DOCUMENT_UNKNOWN", "There is no such document.")
    if not found.original.strip():
        raise Permanent("DOCUMENT_EMPTY", "There is no text in the document.")
    return found


def _processed(document_id: UUID, ctx: Context) -> str:
    redacted = _read(document_id, ctx).redacted
    if redacted is None:
        raise Snooze(timedelta(seconds=1))  # it is being processed; that costs no attempt
    return redacted


async def _step(ctx: Context, percent: float, phase: str) -> None:
    await ctx.progress(percent, phase)
    await asyncio.sleep(ctx.state.pace_seconds)


@contextmanager
def _quoting_nothing() -> Iterator[None]:
    """An exception about a text may quote it: show operators only its type and where it was."""
    try:
        yield
    except HandlerSignal:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in {Path(frame.filename).name}, line {frame.lineno}"
        raise Permanent("TEXT_UNREADABLE", "The text could not be read.", detail=where) from None


def refuse_personal_data(job_type: str, payload: Any) -> str | None:
    """Say why a payload is refused: the second line, for types that come later and have text."""
    found = texts.redact("\n".join(_strings(payload))).hidden
    return f"it holds personal data ({', '.join(found)}); pass an identifier" if found else None


def _strings(data: Any) -> Iterator[str]:
    match data:
        case str():
            yield data
        case dict():
            for value in data.values():
                yield from _strings(value)
        case list():
            for value in data:
                yield from _strings(value)
