"""The 202 for a job that the user's own code submitted."""

from typing import Protocol
from uuid import UUID

from starlette.responses import Response

from gantline.api.answer import JSON, NO_STORE, encode
from gantline.api.documents import AcceptedDocument
from gantline.api.views import status_url
from gantline.contract.status import JobStatus


class Submitted(Protocol):
    """What a handle tells."""

    @property
    def job_id(self) -> UUID: ...

    @property
    def subject_id(self) -> str: ...

    @property
    def duplicate(self) -> bool: ...


class Accepted(Response):
    """The answer of the contract: `return Accepted.of(await index.submit(document))`."""

    @classmethod
    def of(
        cls, handle: Submitted, *, mounted_at: str = "", retry_after_seconds: int = 1
    ) -> "Accepted":
        """`mounted_at` is where the API is, if not at the root."""
        url = status_url(mounted_at, handle.job_id)
        document = AcceptedDocument(
            job_id=handle.job_id,
            subject_id=handle.subject_id,
            status_url=url,
            status=None if handle.duplicate else JobStatus.QUEUED,
            duplicate=handle.duplicate,
        )
        headers = {"location": url, "retry-after": str(retry_after_seconds)}
        headers |= {name.decode(): value.decode() for name, value in (JSON, NO_STORE)}
        return cls(encode(document), 202, headers)
