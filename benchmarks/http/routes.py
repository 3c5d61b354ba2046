"""The routes that are measured."""

from typing import Final

SUBMIT: Final = "/api/jobs"
CONSTANT: Final = "/constant"
