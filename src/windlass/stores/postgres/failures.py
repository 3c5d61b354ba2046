"""PostgreSQL's errors in our words, and which of them another attempt may mend."""

from typing import Final

import psycopg
from psycopg import errors as states

from windlass.contract.errors import (
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)

# Who lost a deadlock or a race may simply go again.
_RACES: Final = (states.SerializationFailure, states.DeadlockDetected)
# Shutdowns, timeouts of idle sessions, too many connections; read-only is a standby, until somebody
# promotes it or we reach the other. (psycopg's classes do not follow the first two letters.)
_GONE: Final = frozenset(
    {"57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04", "53300", "25006"}
)
_NOT_OURS: Final = (
    states.InvalidAuthorizationSpecification,
    states.InvalidPassword,
    states.InvalidCatalogName,
    states.InsufficientPrivilege,
    states.InvalidSchemaName,
)
_NO_SCHEMA: Final = (states.UndefinedTable, states.UndefinedFunction, states.UndefinedObject)


def is_lost(error: BaseException) -> bool:
    """Whether the connection, and with it the answer, is gone."""
    if isinstance(error, psycopg.Error) and _says_that_it_is_gone(error):
        return True
    # Without a state it comes from the client library: refused, reset, closed under our hands.
    return (
        isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        and error.sqlstate is None
        and not is_refused(error)
    )


def _says_that_it_is_gone(error: psycopg.Error) -> bool:
    state = error.sqlstate or ""
    return state.startswith("08") or state in _GONE


def is_refused(error: BaseException) -> bool:
    """Whether the server said no to us, so that asking again will not help."""
    # While connecting libpq hands out the server's words, not its code.
    text = str(error)
    return isinstance(error, psycopg.OperationalError) and any(
        words in text
        for words in (
            "authentication failed",
            "does not exist",
            "no pg_hba.conf entry",
            "no password supplied",
            "could not translate host name",
            "invalid connection option",
        )
    )


def is_worth_another_attempt(error: BaseException) -> bool:
    return isinstance(error, _RACES) or is_lost(error)


def of_any_driver(error: Exception) -> psycopg.Error | None:
    """The same error as psycopg would raise it; None where it does not come from a server."""
    if isinstance(error, psycopg.Error):
        return error
    origin: object = getattr(error, "orig", None) or error  # SQLAlchemy wraps what the driver says
    if isinstance(origin, psycopg.Error):
        return origin
    state = getattr(origin, "sqlstate", None)
    if not isinstance(state, str):
        return None
    try:
        return states.lookup(state)(str(origin))
    except KeyError:
        return psycopg.DatabaseError(str(origin))


def translate(error: psycopg.Error) -> StoreError:
    """Name the cause and the next step. Never the connection string, which holds the password."""
    said = _first_line(error)
    if isinstance(error, _NOT_OURS) or is_refused(error):
        return StoreMisconfigured(
            f"PostgreSQL does not let us in ({said}).",
            next_step="Check user, password, database and rights in the store URL.",
        )
    if isinstance(error, _NO_SCHEMA):
        return SchemaMismatch(
            f"The database lacks a part of our schema ({said}).",
            next_step="Run `windlass db migrate`.",
        )
    if isinstance(error, states.LockNotAvailable):
        return StoreBusy(
            f"Another transaction holds what is needed ({said}).",
            next_step="Find it in pg_stat_activity and end it.",
        )
    if isinstance(error, (*_RACES, states.QueryCanceled)) or is_lost(error):
        return StoreUnavailable(
            f"PostgreSQL cannot be reached or is restarting ({said}).",
            next_step="Check that it runs and accepts connections.",
        )
    if isinstance(error, states.DiskFull | states.OutOfMemory):
        return StoreUnavailable(f"PostgreSQL is out of space ({said}).", next_step="Free some.")
    return StoreError(f"PostgreSQL refused a statement ({said}).")


def _first_line(error: psycopg.Error) -> str:
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    return text.splitlines()[0]
