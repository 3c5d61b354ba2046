"""What Windlass offers to tests: the kit for applications, the conformance suite for stores, a
fake clock, factories, faults."""

from typing import TYPE_CHECKING

from windlass.contract.face import face

if TYPE_CHECKING:
    from windlass.testing.clock import FakeClock
    from windlass.testing.kit import Drained, JobsTest, SubmittedJob, SubmittedJobs
else:
    __getattr__ = face(
        __name__,
        {
            "clock": ("FakeClock",),
            "kit": ("Drained", "JobsTest", "SubmittedJob", "SubmittedJobs"),
        },
    )

__all__ = ["Drained", "FakeClock", "JobsTest", "SubmittedJob", "SubmittedJobs"]
