"""Errors of the client: the library's own by errorCode, and those that only a network has.

WindlassError
├── ServerError
│   ├── ServerUnreachable   SERVER_UNREACHABLE: nobody answered, or not in time
│   ├── ServerFailed        INTERNAL_ERROR: it broke while it answered
│   └── BadAnswer           BAD_ANSWER: what came is not what this API answers
├── NotThere                NOT_FOUND: no such tenant, queue or type
├── RequestRefused          any other code, of a newer server for example: see `error_code`
├── InvalidInput
│   └── UnknownJobType      UNKNOWN_JOB_TYPE
├── SubmitConflict
│   └── RequestKeyReused    IDEMPOTENCY_KEY_REUSED: for another request
└── JobNotFound
    └── JobPurged           JOB_PURGED: it was there, and has ended

All others (QueueFull, Forbidden, RateLimited …) are those of `windlass.contract.errors`. Every
error that a server had to do with has its `correlation_id`.
"""

from windlass.contract.errors import InvalidInput, JobNotFound, SubmitConflict, WindlassError


class ServerError(WindlassError):
    """The server, or the way to it, does not do what it should."""

    code = "SERVER_ERROR"


class ServerUnreachable(ServerError):
    code = "SERVER_UNREACHABLE"


class ServerFailed(ServerError):
    code = "INTERNAL_ERROR"


class BadAnswer(ServerError):
    code = "BAD_ANSWER"


class NotThere(WindlassError):
    code = "NOT_FOUND"


class RequestRefused(WindlassError):
    code = "REQUEST_REFUSED"

    def __init__(self, cause: str, *, error_code: str) -> None:
        super().__init__(cause)
        self.error_code = error_code


class UnknownJobType(InvalidInput):
    code = "UNKNOWN_JOB_TYPE"


class RequestKeyReused(SubmitConflict):
    code = "IDEMPOTENCY_KEY_REUSED"


class JobPurged(JobNotFound):
    code = "JOB_PURGED"
