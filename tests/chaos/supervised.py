"""A worker's slot with a supervisor in it, which keeps two workers running.

python -m tests.chaos.supervised '{"role": "worker", …}'
"""

import os
import sys
from datetime import timedelta

import msgspec

from gantline.cli.supervision.children import PARENT_PIPE
from gantline.cli.supervision.supervisor import Supervisor
from gantline.proving.child import ChildSettings, end_with_parent, run


def main(said: str, *pipe: str) -> int:
    settings = msgspec.json.decode(said, type=ChildSettings)
    if pipe and pipe[0] == PARENT_PIPE:
        name = f"{settings.name}-{os.getpid()}"
        run(msgspec.structs.replace(settings, name=name, parent_pipe=int(pipe[1])))
        return 0
    end_with_parent(settings.parent_pipe)
    command = [sys.executable, "-m", "tests.chaos.supervised", said]
    return Supervisor(2, command, drain=timedelta(seconds=2)).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
