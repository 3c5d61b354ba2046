"""What an extra brings is named by the extra, not by a package that nobody has heard of."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("missing", "module", "extra"),
    [
        ("httpx2", "gantline.client", "client"),
        ("jwt", "gantline.auth.jwt_authenticator", "api"),
        ("cryptography", "gantline.auth.jwks", "api"),
    ],
)
def test_a_missing_extra_is_told_with_how_to_install_it(
    missing: str, module: str, extra: str
) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    assert f"{missing}, which is not installed" in last
    assert f"pip install 'gantline[{extra}]'" in last
