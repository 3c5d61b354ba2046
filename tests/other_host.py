"""Another host on this machine: its own network, process ids, host name and /tmp."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# By the process, so that tests may run side by side.
_NETWORK: Final = f"10.{192 + os.getpid() // 256 % 64}.{os.getpid() % 256}"
# What it shares with this host is the folder of the test: for the journal and for flags.
_ENTER: Final = """
set -e
hostname "$1"
mount --make-rprivate /
mount --bind "$2" /mnt
mount -t tmpfs tmpfs /tmp
mkdir -p "$2"
mount --bind /mnt "$2"
mount -t proc proc /proc
shift 2
exec "$@"
"""


class OtherHost:
    """Programs that are started by `command` run there; `outside` is where it sees this host."""

    def __init__(self, name: str, link: str, folder: Path) -> None:
        self._link = link
        self.outside = f"{_NETWORK}.1"
        self.command: Final = (
            *("nsenter", f"--net=/run/netns/{name}"),
            *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts"),
            *("sh", "-c", _ENTER, "sh", name, str(folder)),
        )

    def cut_off(self) -> None:
        """Take its network away: nobody here hears of it again, not even that."""
        _ip("link", "set", self._link, "down")

    @staticmethod
    def process_in(outer: int) -> int:
        """The process that runs there, by its id here; `outer` is the one that entered."""
        return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])


def why_impossible() -> str:
    """Say what is missing to have another host; nothing where it can be had."""
    missing = [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]
    if missing:
        return f"there is no {', '.join(missing)} here"
    if os.geteuid() != 0:
        return "only root may make a network"
    return ""


@contextmanager
def other_host(folder: Path) -> Iterator[OtherHost]:
    name = f"gantline-{os.getpid()}"
    link = f"gl{os.getpid()}"
    _ip("netns", "add", name)
    try:
        _ip(*f"link add {link} type veth peer name inside netns {name}".split())
        _ip(*f"addr add {_NETWORK}.1/24 dev {link}".split())
        _ip(*f"link set {link} up".split())
        _ip(*f"-n {name} addr add {_NETWORK}.2/24 dev inside".split())
        _ip(*f"-n {name} link set inside up".split())
        _ip(*f"-n {name} link set lo up".split())
        yield OtherHost(name, link, folder)
    finally:
        # By itself the link goes with the last process there, which may be later than the next
        # test wants one of the same name.
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)
        _ip("netns", "del", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
