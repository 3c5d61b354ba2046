"""Write docs/openapi.json anew, after the API has changed: `python scripts/openapi.py`."""

from pathlib import Path

import msgspec

from gantline import Gantline


def text() -> str:
    document = Gantline("memory://").api(allow_anonymous=True).openapi
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


if __name__ == "__main__":
    place = Path(__file__).parent.parent / "docs" / "openapi.json"
    place.write_text(text(), encoding="utf-8")
