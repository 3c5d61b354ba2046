"""PostgreSQL's errors as ours, and which of them are worth a retry."""

import re
import struct
from collections import defaultdict
from typing import Final

import psycopg
from psycopg import errors as states

from gantline.contract.errors import (
    GantlineError,
    InvalidInput,
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)

# The loser of a deadlock or a race can retry.
_RACES: Final = (states.SerializationFailure, states.DeadlockDetected)
# A standby, until it is promoted or we reach the primary; or a server that is being moved.
_READ_ONLY: Final = "25006"
# Shutdowns, timeouts of idle sessions, too many connections. (psycopg's classes do not follow the
# first two letters.)
_GONE: Final = frozenset(
    {"57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04", "53300", _READ_ONLY}
)
_ACCESS_ERRORS: Final = (
    states.InvalidAuthorizationSpecification,
    states.InvalidPassword,
    states.InvalidCatalogName,
    states.InsufficientPrivilege,
    states.InvalidSchemaName,
)
_NO_SCHEMA: Final = (states.UndefinedTable, states.UndefinedFunction, states.UndefinedObject)
_NOT_STORABLE: Final = (
    states.CharacterNotInRepertoire,
    states.UntranslatableCharacter,
    states.NumericValueOutOfRange,
    states.InvalidParameterValue,
    states.InvalidTextRepresentation,
    states.InvalidDatetimeFormat,
    states.DatetimeFieldOverflow,
)
# While connecting, libpq gives the server's message, not its code.
_REFUSALS: Final = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "no password supplied",
    "certificate verify failed",
    "does not support SSL",
)
_NO_SUCH_HOST: Final = ("failed to resolve host", "could not translate host name")
# What sending raises: errors of the driver or the server, and two that the driver does not wrap.
RAISED: Final = (psycopg.Error, UnicodeEncodeError, struct.error)
# How psycopg reports several hosts, or several addresses of one.
_ATTEMPT: Final = re.compile(r"^- (host: .*?, port: .*?), hostaddr: ", re.MULTILINE)


def is_lost(error: BaseException) -> bool:
    """Whether a connection was lost or could not be opened, so that another may work."""
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith("08") or error.sqlstate in _GONE
    # Without a state it comes from the client library: refused, reset, closed.
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not is_refused(
        error
    )


def may_be_done(error: psycopg.Error) -> bool:
    """Whether the work on a lost connection may have been done, and only the response was lost.

    Not where the server refused it. Only the caller knows whether anything was sent at all.
    """
    return is_lost(error) and error.sqlstate != _READ_ONLY


def is_refused(error: BaseException) -> bool:
    """Whether every host refused us, so that a retry will not help.

    A host that is down, or whose name is not found for now, might accept us.
    """
    if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
        return False
    hosts: defaultdict[str, list[str]] = defaultdict(list)
    parts = _ATTEMPT.split(str(error))
    for host, message in zip(parts[1::2], parts[2::2], strict=True):
        hosts[host].append(message)
    return all(map(_are_refusals, hosts.values() or [[parts[0]]]))


def _are_refusals(messages: list[str]) -> bool:
    return any(words in message for message in messages for words in _REFUSALS)


def is_retryable(error: BaseException) -> bool:
    return isinstance(error, _RACES) or is_lost(error)


def find_psycopg_error(error: Exception) -> psycopg.Error | None:
    """Give the error as psycopg would raise it; None where it does not come from a server."""
    if isinstance(error, psycopg.Error):
        return error
    origin: object = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's error
    if isinstance(origin, psycopg.Error):
        return origin
    state = getattr(origin, "sqlstate", None)
    if not isinstance(state, str):
        return None
    try:
        return states.lookup(state)(str(origin))
    except KeyError:
        return psycopg.DatabaseError(str(origin))


def to_psycopg_error(error: Exception) -> psycopg.Error:
    """Make one error of psycopg for all values that cannot be sent."""
    return error if isinstance(error, psycopg.Error) else psycopg.DataError(str(error))


def translate_with_cause(error: psycopg.Error) -> GantlineError:
    """Make the error to raise, outside of the block that caught this one.

    Its cause has only the first line of the driver's error: what follows, and what SQLAlchemy adds,
    shows rows and parameters, and with them payloads.
    """
    problem = translate_error(error)
    problem.__cause__ = type(error)(_first_line(error))
    return problem


def translate_error(error: psycopg.Error) -> GantlineError:
    """Name the cause and the next step. Never the connection string, which has the password."""
    message = _first_line(error)
    if isinstance(error, _ACCESS_ERRORS) or is_refused(error):
        return StoreMisconfigured(
            f"PostgreSQL does not let us in ({message}).",
            next_step="Check user, password, database and rights in the store URL.",
        )
    if isinstance(error, _NO_SCHEMA):
        return SchemaMismatch(
            f"The database lacks a part of our schema ({message}).",
            next_step="Run `gantline db migrate`.",
        )
    if isinstance(error, _NOT_STORABLE) or _is_from_driver(error):
        return InvalidInput(f"PostgreSQL cannot take this ({message}).")
    if isinstance(error, states.LockNotAvailable):
        return StoreBusy(
            f"Another transaction holds what is needed ({message}).",
            next_step="Find it in pg_stat_activity and end it.",
        )
    if isinstance(error, _RACES):
        return StoreBusy(
            f"Another transaction was in the way ({message}).",
            next_step="Roll back and try again; READ COMMITTED clashes least.",
        )
    return _translate_unavailable(error, message)


def _translate_unavailable(error: psycopg.Error, message: str) -> StoreError:
    if any(words in message for words in _NO_SUCH_HOST):
        return StoreUnavailable(
            f"The host of PostgreSQL is not found ({message}).",
            next_step="Check its name in the store URL, and the name service.",
        )
    if error.sqlstate == _READ_ONLY:
        return StoreUnavailable(
            f"PostgreSQL takes no writes here ({message}).",
            next_step="Use the primary, not a standby (target_session_attrs=read-write in the URL "
            "looks for it), and look at default_transaction_read_only.",
        )
    if isinstance(error, states.QueryCanceled):
        return StoreUnavailable(
            f"PostgreSQL has stopped a statement ({message}).",
            next_step="Look at statement_timeout of this role, and for locks in pg_stat_activity.",
        )
    if is_lost(error):
        return StoreUnavailable(
            f"PostgreSQL cannot be reached or is restarting ({message}).",
            next_step="Check that it runs and accepts connections.",
        )
    if isinstance(error, states.DiskFull | states.OutOfMemory):
        return StoreUnavailable(f"PostgreSQL is out of space ({message}).", next_step="Free some.")
    return StoreError(f"PostgreSQL refused a statement ({message}).")


def _is_from_driver(error: psycopg.Error) -> bool:
    """Whether a value was not even sent to the server, as a text with a NUL."""
    return isinstance(error, psycopg.DataError) and error.sqlstate is None


def _first_line(error: psycopg.Error) -> str:
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    return text.splitlines()[0]
