"""Serve the application on this machine: `python -m examples.document_processing [--port 8000]`."""

import argparse
import logging
from pathlib import Path
from typing import Final

import uvicorn

from examples.document_processing.app import create_app

_FOLDER: Final = Path(".demo")
_PACE_SECONDS: Final = 0.7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--database", type=Path, default=_FOLDER / "documents.db")
    arguments = parser.parse_args()
    arguments.database.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s %(message)s")
    app = create_app(arguments.database, pace_seconds=_PACE_SECONDS)
    print(f"Open http://127.0.0.1:{arguments.port}; Ctrl-C stops.")
    uvicorn.run(app, port=arguments.port, log_config=None, access_log=False)


if __name__ == "__main__":
    main()
