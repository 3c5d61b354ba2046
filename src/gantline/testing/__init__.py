"""What Gantline offers to tests: the kit for applications, the conformance suite for stores, a
fake clock, factories, faults."""

from typing import TYPE_CHECKING

from gantline.importing import face

if TYPE_CHECKING:
    from gantline.testing.clock import FakeClock
    from gantline.testing.kit import Drained, JobsTest, SubmittedJob, SubmittedJobs
else:
    __getattr__ = face(
        __name__,
        {
            "clock": ("FakeClock",),
            "kit": ("Drained", "JobsTest", "SubmittedJob", "SubmittedJobs"),
        },
    )

__all__ = ["Drained", "FakeClock", "JobsTest", "SubmittedJob", "SubmittedJobs"]
