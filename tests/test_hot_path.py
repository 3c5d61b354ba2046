"""What a change of the hot path did is told from figures and from recorded calls."""

import ast
import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from benchmarks.__main__ import TOOLS
from benchmarks.contest.children import ChildFailed
from benchmarks.hot_path import calls, guard, speed_child, trees
from benchmarks.hot_path.calls import Operation
from benchmarks.hot_path.figures import (
    DRAIN,
    PARTS,
    PICK_UP,
    SINGLE_CPU,
    UNITS,
    Compared,
    Figures,
    best_of,
)
from benchmarks.hot_path.json_watch import Crossing, JsonWatch
from benchmarks.hot_path.recorder import Recorder, Step, files_of, returns_of
from benchmarks.hot_path.trees import THIS, Tree, answer_to
from tests.servers.missing import ServerMissing

BASE = dict.fromkeys(UNITS, 100.0)
Pair = tuple[Figures, Figures]


# -- verdicts --------------------------------------------------------------------------------------


def verdict(name: str, *values: float) -> str:
    return Compared("memory", name, values, [100.0] * len(values)).verdict


def test_a_rate_is_slower_if_it_is_less_and_a_cost_if_it_is_more() -> None:
    assert verdict(DRAIN, 90, 91, 92) == "slower"
    assert verdict(DRAIN, 110, 111, 112) == "faster"
    assert verdict(SINGLE_CPU, 110, 111, 112) == "slower"
    assert verdict(PICK_UP, 90, 91, 92) == "faster"


def test_a_median_of_five_percent_less_is_not_slower() -> None:
    assert verdict(DRAIN, 80, 95, 99) == ""
    assert verdict(DRAIN, 80, 94.9, 99) == "slower"


def test_nothing_is_slower_where_one_pair_does_not_agree() -> None:
    assert verdict(DRAIN, 50, 50, 50, 50, 100) == ""
    assert verdict(DRAIN, 50, 50, 50, 50, 99.9) == "slower"


def test_the_best_turn_is_the_greatest_rate_and_the_least_cost() -> None:
    best = best_of([dict.fromkeys(UNITS, value) for value in (3.0, 1.0, 2.0)])
    assert (best[DRAIN], best[SINGLE_CPU]) == (3.0, 1.0)


# -- the guard -------------------------------------------------------------------------------------


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    """What pairs of processes measure, in order; the last one goes on for ever."""
    pairs: list[Pair] = []

    def pair(*_: object) -> Pair:
        return pairs.pop(0) if len(pairs) > 1 else pairs[0]

    def memory(folder: Path) -> AbstractContextManager[guard.Emptied]:
        return nullcontext(lambda name: nullcontext("memory://"))

    monkeypatch.setattr(guard, "STORES", {"memory": memory})
    monkeypatch.setattr(guard, "_pair", pair)
    monkeypatch.setattr(guard, "tree_of", lambda name, folder: nullcontext(Tree(name, folder)))
    monkeypatch.setattr(guard, "revision", str)
    return pairs


def test_a_tree_like_its_base_makes_no_difference(
    taken: list[Pair], capsys: pytest.CaptureFixture[str]
) -> None:
    taken.append((BASE, BASE))
    assert guard.main(["main"]) == 0
    table = capsys.readouterr().out
    assert table.endswith("no difference to main\n")
    assert table.count("1.00 - 1.00") == len(UNITS)


def test_a_slower_tree_ends_with_1_and_says_where(
    taken: list[Pair], capsys: pytest.CaptureFixture[str]
) -> None:
    taken.append((BASE | {SINGLE_CPU: 125.0}, BASE))
    assert guard.main(["main"]) == 1
    assert capsys.readouterr().out.endswith(f"slower than main: {SINGLE_CPU} (memory)\n")


@pytest.mark.parametrize(("cost", "seems"), [(125.0, "slower"), (75.0, "faster")])
def test_what_seems_to_differ_is_measured_again_and_twice_as_many_pairs_must_agree(
    taken: list[Pair], capsys: pytest.CaptureFixture[str], cost: float, seems: str
) -> None:
    taken += [(BASE | {SINGLE_CPU: cost}, BASE)] * 3 + [(BASE, BASE)]
    assert guard.main(["main", "--pairs", "3"]) == 0
    said = capsys.readouterr()
    assert f"all is measured again: {SINGLE_CPU} ({seems})" in said.err
    assert said.out.endswith("no difference to main\n")
    line = next(line for line in said.out.splitlines() if SINGLE_CPU in line)
    assert line.endswith(" 6")


def test_a_store_without_its_server_is_left_out_with_the_reason(
    taken: list[Pair], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(folder: Path) -> AbstractContextManager[guard.Emptied]:
        raise ServerMissing("there is no redis-server here")

    taken.append((BASE, BASE))
    monkeypatch.setattr(guard, "STORES", {**guard.STORES, "redis": missing})
    assert guard.main(["main"]) == 0
    said = capsys.readouterr()
    assert "redis is left out: there is no redis-server here" in said.err
    assert "redis" not in said.out
    assert guard.main(["main", "--store", "redis"]) == 2
    assert "nothing was measured" in capsys.readouterr().err


def test_a_base_that_cannot_be_measured_is_not_called_slower(
    taken: list[Pair], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Pair:
        raise ChildFailed("main: it did not start")

    monkeypatch.setattr(guard, "_pair", fail)
    assert guard.main(["main"]) == 2
    assert "main: it did not start" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["guard"], "required: BASE"),
        (["guard", "no-such-revision"], "git knows no revision 'no-such-revision' here"),
        (["calls", "no-such-revision"], "git knows no revision 'no-such-revision' here"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_measured(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        TOOLS[words[0]](words[1:])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_fewer_than_three_pairs_are_refused(
    taken: list[Pair], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        guard.main(["main", "--pairs", "2"])
    assert "2 is not a number from 3 on" in capsys.readouterr().err


# -- trees -----------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "file").write_text("old")
    person = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (["init", "--quiet"], ["add", "."], [*person, "commit", "--quiet", "-m", "one"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    (folder / "src" / "file").write_text("new")
    monkeypatch.setattr(trees, "ROOT", folder)
    return folder


def test_a_base_is_a_worktree_of_its_revision_that_leaves_nothing_behind(
    repository: Path, tmp_path: Path
) -> None:
    with suppress(KeyboardInterrupt), trees.tree_of("HEAD", tmp_path) as base:
        assert (base.source / "file").read_text() == "old"
        raise KeyboardInterrupt
    assert not base.source.parent.exists()
    listed = subprocess.run(
        ["git", "worktree", "list"], cwd=repository, check=True, capture_output=True, text=True
    )
    assert len(listed.stdout.splitlines()) == 1


def test_a_tree_is_not_measured_in_place_of_another(tmp_path: Path) -> None:
    """Without a Gantline of its own a folder gets the one that is installed."""
    program = Tree("other", tmp_path).started("benchmarks.hot_path.speed_child", "memory://")
    with pytest.raises(ChildFailed, match=r"other: .+ is measured in place of"), program:
        pass


# -- programs that are measured --------------------------------------------------------------------


@pytest.mark.parametrize("program", ["speed_child", "calls_child"])
def test_a_program_that_is_measured_uses_public_names_only(program: str) -> None:
    """It runs on other revisions, whose insides are not ours."""
    text = Path(speed_child.__file__).with_name(f"{program}.py").read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules += [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    assert "gantline" in modules
    assert not [module for module in modules if module.startswith("gantline.")]


def test_a_process_tells_every_figure_in_every_turn() -> None:
    with THIS.started("benchmarks.hot_path.speed_child", "memory://") as child:
        for _ in range(2):
            answers = [answer_to(child, part) for part in PARTS]
            told = {name: value for answer in answers for name, value in answer.items()}
            assert told.keys() == UNITS.keys()
            assert min(told.values()) > 0


def test_the_calls_of_a_submit_a_run_and_a_get_are_told(tmp_path: Path) -> None:
    with THIS.started("benchmarks.hot_path.calls_child", str(tmp_path / "calls.db")) as child:
        told = msgspec.convert(answer_to(child), calls.Operations)
    submit, get, run = told.values()
    assert Step("JobType.submit", "app/job_type.py") in submit.steps
    assert Step("Api.__call__", "api/application.py") in get.steps
    # The first is on the loop, the second in the thread of SQLite's writer.
    called = {step.file for step in run.steps}
    assert {"worker/completer.py", "stores/sqlite/apply.py"} <= called
    assert all(operation.crossings for operation in told.values())


# -- recording -------------------------------------------------------------------------------------

FIRST = """
import asyncio
import threading
import second

async def begin():
    await asyncio.sleep(0)
    second.ask()
    await again()
    [ask for ask in (1, 2)]

async def again():
    await asyncio.sleep(0)
    thread = threading.Thread(target=second.ask)
    thread.start()
    thread.join()
"""
SECOND = """
def ask():
    return answer()

def answer():
    return 1
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "first.py").write_text(FIRST)
    (folder / "second.py").write_text(SECOND)
    return folder


@pytest.fixture
def recorder(package: Path) -> Iterator[Recorder]:
    recorder = Recorder(package)
    yield recorder
    sys.setprofile(None)
    threading.setprofile(None)


def loaded(package: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = spec_from_file_location(name, package / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_calls_are_recorded_in_order_in_all_threads_and_a_coroutine_once(
    package: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = loaded(package, "second", monkeypatch)
    first = loaded(package, "first", monkeypatch)
    recorder.install()
    second.ask()
    recorder.start()
    asyncio.run(first.begin())
    steps = recorder.stop()
    second.ask()
    there, back = Step("begin", "first.py"), Step("again", "first.py")
    asked = [Step("ask", "second.py"), Step("answer", "second.py")]
    assert steps == [there, *asked, back, *asked]
    assert recorder.stop() == []


def test_files_and_returns_to_a_file_are_counted_along_the_path() -> None:
    steps = [Step("", file) for file in ("a", "a", "b", "a", "a", "c", "b", "b")]
    assert files_of(steps) == 3
    assert returns_of(steps) == 2
    assert returns_of([]) == 0


@pytest.fixture
def watch(package: Path, monkeypatch: pytest.MonkeyPatch) -> JsonWatch:
    for module, name in (
        (msgspec.json, "encode"),
        (msgspec.json, "decode"),
        (msgspec.json, "Encoder"),
        (msgspec.json, "Decoder"),
        (json, "dumps"),
        (json, "loads"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))  # so that it is put back
    watch = JsonWatch(package, "the-mark")
    watch.install()
    return watch


def test_only_json_that_carries_the_payload_is_counted(watch: JsonWatch) -> None:
    msgspec.json.encode(["the-mark"])
    watch.start()
    body = msgspec.json.encode(["the-mark"])
    msgspec.json.encode(["other"])
    assert msgspec.json.Decoder(list[str]).decode(body) == ["the-mark"]
    assert msgspec.json.decode(b'["other"]') == ["other"]
    msgspec.json.Encoder().encode([msgspec.Raw(body)])
    json.loads(json.dumps(["the-mark"]))
    crossings = watch.stop()
    msgspec.json.decode(body)
    assert [crossing.call for crossing in crossings] == [
        "msgspec.json.encode",
        "msgspec.json.Decoder.decode",
        "msgspec.json.Encoder.encode",
        "json.dumps",
        "json.loads",
    ]
    assert crossings[0].function == "test_only_json_that_carries_the_payload_is_counted"


def test_two_trees_stand_side_by_side() -> None:
    short = Operation([Step("a", "a.py")], [])
    long = Operation([Step("a", "a.py"), Step("b", "b.py")], [Crossing("json.loads", "a", "a.py")])
    table = calls.table({"this tree": {"submit": short}, "old": {"submit": long}}, costs())
    lines = [line.split() for line in table.splitlines()[2:]]
    assert [line[-2:] for line in lines[:4]] == [["1", "2"], ["1", "2"], ["0", "0"], ["0", "1"]]
    assert all(line[-2:] == ["10", "20"] for line in lines[4:])


def costs() -> dict[str, Figures]:
    return {"this tree": dict.fromkeys(UNITS, 10.0), "old": dict.fromkeys(UNITS, 20.0)}
