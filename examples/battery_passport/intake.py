"""The intake: a document and the job that reads it are accepted together, or neither."""

from typing import Any
from unicodedata import category

from examples.battery_passport.books import Books
from examples.battery_passport.canonical import instant_text
from examples.battery_passport.documents import LARGEST_DOCUMENT
from examples.battery_passport.steps import Document, parse_facts
from gantline import Gantline, Handle, InvalidInput
from gantline.errors import PayloadTooLarge


async def receive(
    jobs: Gantline,
    name: str,
    content: bytes,
    *,
    tenant: str,
    owner: str = "",
    correlation_id: str | None = None,
    now: str | None = None,
) -> Handle[dict[str, Any]]:
    """Keep a document and have it read; the same bytes again are the same document and job."""
    if len(content) > LARGEST_DOCUMENT:
        raise PayloadTooLarge(f"A document has {LARGEST_DOCUMENT} bytes at most.")
    if any(category(one) == "Cc" for one in name):  # not every database can keep it
        raise InvalidInput("The name of a document has no control characters.")
    if not content:
        raise InvalidInput("The document is empty.")
    async with jobs.transaction() as connection:
        document_id = await Books(connection).add_document(
            tenant, name, content, now=now or instant_text(jobs.clock.now())
        )
        return await parse_facts.submit(
            Document(document_id),
            tenant=tenant,
            owner=owner,
            correlation_id=correlation_id,
            connection=connection,
        )
