"""Response factories: how the three kinds of answers look. Replace them to shape your own."""

from collections.abc import Sequence

from gantline.api.answer import JSON, NO_STORE, PRIVATE, PROBLEM_JSON, Answer, Header, encode
from gantline.api.documents import AcceptedDocument, ProblemDocument, StatusDocument


class Responses:
    """Make answers of documents. Subclass it, and give yours to `jobs.api(responses=…)`.

    `headers` are those that the contract asks for (Location, ETag, Retry-After …): keep them.
    """

    def submitted(self, accepted: AcceptedDocument, headers: Sequence[Header]) -> Answer:
        return Answer(202, encode(accepted), (JSON, NO_STORE, *headers))

    def status(self, status: StatusDocument, headers: Sequence[Header]) -> Answer:
        return Answer(200, encode(status), (JSON, PRIVATE, *headers))

    def error(self, problem: ProblemDocument, headers: Sequence[Header]) -> Answer:
        return Answer(problem.status, encode(problem), (PROBLEM_JSON, NO_STORE, *headers))
