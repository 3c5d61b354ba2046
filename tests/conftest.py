"""Turns every skip into a failure when CI=true: a proof that did not run proves nothing."""

import os
from collections.abc import Generator

import pytest


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    # pytest reports an expected failure as a skip too; `wasxfail` tells the two apart.
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid} may not be skipped in CI. {reason}"


# tryfirst: outermost, so it sees the report after pytest has settled what is an xfail.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report
