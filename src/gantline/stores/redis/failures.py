"""Redis's errors as ours, and which of them are worth a retry."""

import struct
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from redis import exceptions as driver_errors

from gantline.contract.errors import (
    GantlineError,
    InvalidInput,
    StoreCorrupt,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)

# What the connection or the server raises, and what packing a lone surrogate raises.
RAISED: Final = (driver_errors.RedisError, OSError, UnicodeEncodeError)

# What reading a reply raises that is of another kind or size than that of the script.
_UNREADABLE: Final = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    struct.error,
)
_REFUSALS: Final = (
    driver_errors.AuthenticationError,
    driver_errors.AuthenticationWrongNumberOfArgsError,
    driver_errors.AuthorizationError,
    driver_errors.NoPermissionError,
)
_BAD_CERTIFICATE: Final = "certificate_verify_failed"
# The server cannot serve us for now: it loads its data, is a replica, waits for its primary, lacks
# a part of the cluster, moves the slot, or another client's script runs.
_NOT_NOW: Final = (
    driver_errors.BusyLoadingError,
    driver_errors.ReadOnlyError,
    driver_errors.MasterDownError,
    driver_errors.ClusterDownError,
    driver_errors.TryAgainError,
    driver_errors.AskError,
)
_NOT_NOW_WORDS: Final = ("BUSY ", "MASTERDOWN", "NOREPLICAS", "UNBLOCKED", "CLUSTERDOWN", "LOADING")


P = ParamSpec("P")
T = TypeVar("T")


def reads_replies(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Have a verb raise StoreCorrupt where a reply cannot be read."""

    @wraps(verb)
    async def call(*args: P.args, **options: P.kwargs) -> T:
        try:
            return await verb(*args, **options)
        except GantlineError:
            raise
        except _UNREADABLE as error:
            raise StoreCorrupt(
                f"Redis has answered what cannot be read ({type(error).__name__}: {error}).",
                next_step="Look for keys of the prefix that others have changed, and for a proxy.",
            ) from error

    return call


def is_refused(error: Exception) -> bool:
    """Whether the server refused us, or its certificate is bad, so that a retry will not help."""
    return isinstance(error, _REFUSALS) or _BAD_CERTIFICATE in str(error).lower()


def find_moved_node(error: Exception) -> tuple[str, int] | None:
    """Find where the slot is, if the cluster says so."""
    return (error.host, int(error.port)) if type(error) is driver_errors.MovedError else None


def is_lost(error: Exception) -> bool:
    """Whether a connection was lost or could not be opened, so that another may work."""
    if is_refused(error) or isinstance(
        error, driver_errors.BusyLoadingError
    ):  # ConnectionErrors too
        return False
    return isinstance(error, driver_errors.ConnectionError | driver_errors.TimeoutError | OSError)


def is_retryable(error: Exception) -> bool:
    if is_refused(error):
        return False
    text = str(error)
    return (
        is_lost(error)
        or isinstance(error, (*_NOT_NOW, driver_errors.MovedError))
        or text.startswith(_NOT_NOW_WORDS)
    )


def translate_with_cause(error: Exception) -> GantlineError:
    """Make the error to raise, outside of the block that caught this one; its cause is one line."""
    problem = translate_error(error)
    problem.__cause__ = type(error)(_first_line(error)) if _is_plain(error) else None
    return problem


def translate_error(error: Exception) -> GantlineError:
    """Name the cause and the next step. Never the URL, which has the password."""
    message = _first_line(error)
    match error:
        case UnicodeEncodeError():
            return InvalidInput("A text contains a lone surrogate, which is not text.")
        case driver_errors.MovedError():
            return StoreMisconfigured(
                "The server is a part of a cluster.",
                next_step="Write redis+cluster:// in the store URL.",
            )
        case driver_errors.NoPermissionError():
            return StoreMisconfigured(
                f"The user of the store lacks a right ({message}).",
                next_step="Let it run scripts and use every key and channel of the prefix.",
            )
        case _ if is_refused(error):
            return StoreMisconfigured(
                f"Redis does not let us in ({message}).",
                next_step="Check user, password and certificates (ssl_ca_certs) in the store URL.",
            )
        case driver_errors.OutOfMemoryError():
            return StoreUnavailable(
                f"Redis is out of memory ({message}).",
                next_step="Raise maxmemory, shorten the retention, or let workers catch up.",
            )
        case driver_errors.ReadOnlyError():
            return StoreUnavailable(
                f"Redis takes no writes here ({message}).",
                next_step="Use the primary; name every server in the URL, and the one that takes "
                "writes is found.",
            )
        case driver_errors.BusyLoadingError():
            return StoreUnavailable(
                f"Redis is still loading its data ({message}).", next_step="Wait for it."
            )
        case _ if isinstance(error, _NOT_NOW):
            return StoreUnavailable(
                f"The cluster, or the primary, is not ready ({message}).",
                next_step="Wait for the failover or the move of the slot to end.",
            )
        case _ if is_lost(error) or is_retryable(error):
            return StoreUnavailable(
                f"Redis cannot be reached or is restarting ({message}).",
                next_step="Check that it runs and accepts connections.",
            )
        case _:
            return StoreError(f"Redis refused a call ({message}).")


def _is_plain(error: Exception) -> bool:
    """Whether it can be made from a line of text."""
    return not isinstance(error, driver_errors.MovedError | UnicodeEncodeError)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
