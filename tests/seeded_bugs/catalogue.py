"""All seeded bugs, in the order of the parts that they are in."""

from typing import Final

from tests.seeded_bugs.bug import Bug
from tests.seeded_bugs.local_store_bugs import MEMORY_BUGS, SQLITE_BUGS
from tests.seeded_bugs.manager_bugs import MANAGER_BUGS
from tests.seeded_bugs.server_store_bugs import POSTGRES_BUGS, REDIS_BUGS
from tests.seeded_bugs.worker_bugs import WORKER_BUGS

BUGS: Final[dict[str, Bug]] = {
    bug.name: bug
    for bug in (
        *MANAGER_BUGS,
        *WORKER_BUGS,
        *MEMORY_BUGS,
        *SQLITE_BUGS,
        *POSTGRES_BUGS,
        *REDIS_BUGS,
    )
}
