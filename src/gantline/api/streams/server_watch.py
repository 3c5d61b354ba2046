"""Whether the server around us is about to stop: then streams must end, or it waits for them."""

import signal
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

IsStopping = Callable[[], bool]

_EXTENSION: Final = "gantline.stopping"


def tell_stopping(scope: MutableMapping[str, Any], is_stopping: IsStopping) -> None:
    """For a server of ours: let those who serve this request ask whether it is stopping."""
    scope.setdefault("extensions", {})[_EXTENSION] = is_stopping


def stopping_of(scope: Mapping[str, Any]) -> IsStopping:
    told: IsStopping | None = (scope.get("extensions") or {}).get(_EXTENSION)
    return told or _uvicorn_is_stopping


def _uvicorn_is_stopping() -> bool:
    """See it from uvicorn's own handler of SIGTERM; ASGI has no word for it before it is done.

    uvicorn waits for open responses, and tells the application only when there are none left.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True
