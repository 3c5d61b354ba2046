"""What a package offers can be imported from it, and loads only what it needs."""

import importlib
import subprocess
import sys

import pytest

FACES = [
    "gantline",
    "gantline.api",
    "gantline.auth",
    "gantline.client",
    "gantline.testing",
    "gantline.webhooks",
]


@pytest.mark.parametrize("package", FACES)
def test_every_name_that_a_package_offers_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_a_name_that_is_not_offered_is_no_attribute() -> None:
    auth = importlib.import_module("gantline.auth")
    with pytest.raises(AttributeError, match=r"'gantline\.auth' has no attribute 'Nobody'"):
        auth.Nobody  # noqa: B018  # asking for it is the test


def test_one_part_of_a_package_does_not_load_what_another_needs() -> None:
    look = "import sys; from gantline.auth import Principal; print('jwt' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
