"""A real server for tests: uvicorn as `gantline api` runs it, in a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gantline.api.server import ApiServer


@contextmanager
def served(app: Any, **options: Any) -> Iterator[str]:
    """Serve an application on a free port; gives its URL."""
    server = ApiServer(app, host="127.0.0.1", port=0, has_lifespan=True, **options)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), name="served-api")
    thread.start()
    try:
        yield server.url
    finally:
        server.stop()
        thread.join()
