"""The lock of a session: only the end of its process makes it free, and nothing else is proof."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantline.worker.session_lock import SessionLock

HOLDER = """
import sys
from pathlib import Path
from gantline.worker.session_lock import SessionLock
SessionLock("store", "other", folder=Path(sys.argv[1])).take()
print("held", flush=True)
sys.stdin.read()
"""


def started(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # our own
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of the session `other`."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with started(command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[SessionLock]:
    lock = SessionLock("store", "mine", folder=tmp_path)
    lock.take()
    yield lock
    lock.release()


def test_a_killed_process_is_seen_to_have_ended(
    holder: "subprocess.Popen[str]", lock: SessionLock
) -> None:
    assert lock.ended() == []
    holder.kill()
    holder.wait()
    assert lock.ended() == ["other"]
    assert lock.ended() == ["other"], "until somebody has acted on it"
    lock.forget("other")
    assert lock.ended() == []


def test_a_frozen_process_has_not_ended(holder: "subprocess.Popen[str]", lock: SessionLock) -> None:
    holder.send_signal(signal.SIGSTOP)
    assert lock.ended() == []
    holder.send_signal(signal.SIGCONT)


def test_what_a_dead_process_has_left_is_no_proof_if_its_child_lives(
    lock: SessionLock, tmp_path: Path
) -> None:
    """A fork has the lock too. Then the lease decides, as everywhere."""
    fork = HOLDER.replace("print(", "import os\nif os.fork(): sys.stdin.read()\nprint(")
    command = [sys.executable, "-c", fork.replace('"other"', '"forked"'), str(tmp_path)]
    with started(command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert lock.ended() == []
        assert process.stdin is not None
        process.stdin.close()  # the child ends
        process.stdout.read()
        assert lock.ended() == ["forked"]


def test_who_ends_well_leaves_nothing(tmp_path: Path, lock: SessionLock) -> None:
    other = SessionLock("store", "other", folder=tmp_path)
    other.take()
    assert sorted(os.listdir(tmp_path)) == ["store.mine", "store.other"]
    other.release()
    assert os.listdir(tmp_path) == ["store.mine"]
    assert lock.ended() == []


def test_sessions_of_other_stores_are_not_ours_to_judge(tmp_path: Path, lock: SessionLock) -> None:
    (tmp_path / "elsewhere.other").write_bytes(lock._boot)
    assert lock.ended() == []


@pytest.mark.parametrize("boot", [b"", b"another", b"another boot of a kernel far away"])
def test_a_file_of_another_host_is_no_proof(tmp_path: Path, lock: SessionLock, boot: bytes) -> None:
    """On a shared disk, where locks may not reach from host to host."""
    (tmp_path / "store.other").write_bytes(boot)
    assert lock.ended() == []


def test_a_copy_of_a_file_is_no_proof(
    holder: "subprocess.Popen[str]", lock: SessionLock, tmp_path: Path
) -> None:
    original = tmp_path / "store.other"
    copy = tmp_path / "copy"
    copy.write_bytes(original.read_bytes())
    copy.rename(original)
    assert lock.ended() == []


def test_a_folder_that_cannot_be_used_costs_only_the_quick_take_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    lock = SessionLock("store", "mine", folder=tmp_path / "file" / "folder")
    lock.take()
    assert "no lock for this session" in caplog.text
    assert lock.ended() == []
    lock.release()


def test_without_a_temporary_folder_there_is_no_lock_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a container whose disks can only be read."""

    def none_can_be_written() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none_can_be_written)
    (tmp_path / f"gantline-{os.getuid()}").touch()  # root may write even where nobody may
    monkeypatch.chdir(tmp_path)
    lock = SessionLock("store", "mine")
    lock.take()
    assert "no lock for this session" in caplog.text
    assert lock.ended() == []
    lock.release()


def test_who_has_no_lock_believes_no_other_either(
    holder: "subprocess.Popen[str]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may belong to somebody else, who can put anything into it."""
    holder.kill()
    holder.wait()
    lock = SessionLock("store", "mine", folder=tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    lock.take()
    assert lock.ended() == []


def test_a_file_that_goes_while_old_ones_are_looked_for_costs_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that start together rename theirs meanwhile."""
    gone = [tmp_path / ".store.starting"]
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter(gone))
    lock = SessionLock("store", "mine", folder=tmp_path)
    lock.take()
    assert os.listdir(tmp_path) == ["store.mine"]
    lock.release()


def test_what_cannot_be_read_hides_no_ended_session(
    holder: "subprocess.Popen[str]", lock: SessionLock, tmp_path: Path
) -> None:
    (tmp_path / "store.folder").mkdir()
    holder.kill()
    holder.wait()
    assert lock.ended() == ["other"]


def test_files_that_nobody_asks_for_any_more_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "gone.other"
    first = SessionLock("store", "first", folder=tmp_path)
    left.touch()
    left.write_bytes(b"%s %d" % (first._boot, left.stat().st_ino))
    os.utime(left, (0, 0))
    first.take()
    assert not left.exists()
    first.release()
