"""Tables in a narrow terminal: ids and what matters are whole; the rest folds, or goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gantline.cli.table import Columns, table_of

ID = "01a1de8f-3ce6-7d77-b7ef-2d24d944341e"
COLUMNS = Columns(
    ("jobId", "state", "age", "jobType", "why"), prose="why", expendable=("age", "state")
)
ROW = {
    "jobId": ID,
    "state": "Poisoned",
    "age": "14 min",
    "jobType": "document-indexing",
    "why": "HANDLER_ERROR (ZeroDivisionError): The job failed unexpectedly.",
}


def test_a_table_that_fits_is_as_wide_as_what_is_in_it() -> None:
    header, row = table_of([ROW], COLUMNS, 200).lines
    assert header.split() == list(COLUMNS.names)
    assert row == "  ".join(ROW.values())


def test_prose_folds_in_its_column_while_that_is_wide_enough_to_read() -> None:
    _, first, second = table_of([ROW], COLUMNS, 120).lines
    assert first.endswith("HANDLER_ERROR (ZeroDivisionError): The job")
    assert second.strip() == "failed unexpectedly."
    assert len(second) - len(second.lstrip()) == first.index("HANDLER_ERROR")


def test_prose_is_put_below_its_row_where_its_column_would_be_a_tower() -> None:
    header, row, why = table_of([ROW], COLUMNS, 80).lines
    assert header.split() == ["jobId", "state", "age", "jobType"]
    assert row.split() == [ID, "Poisoned", "14", "min", "document-indexing"]
    assert why == "    " + ROW["why"]


def test_what_can_be_done_without_goes_in_its_order() -> None:
    assert table_of([ROW], COLUMNS, 70).lines[0].split() == ["jobId", "state", "jobType"]
    assert table_of([ROW], COLUMNS, 60).lines[0].split() == ["jobId", "jobType"]


def test_what_gave_way_is_named() -> None:
    assert table_of([ROW], COLUMNS, 200).left_out == []
    assert table_of([ROW], COLUMNS, 60).left_out == ["state", "age"]
    empty = ROW | {"age": ""}
    assert table_of([empty], COLUMNS, 60).left_out == ["state"], "it says nothing anyway"


def test_the_last_to_give_way_folds_and_nothing_is_cut() -> None:
    lines = table_of([ROW], COLUMNS, 48).lines
    assert lines[1].startswith(ID)
    assert "".join(line[38:].strip() for line in lines[1:3]) == "document-indexing"


def test_an_id_is_whole_in_the_narrowest_terminal() -> None:
    assert ID in table_of([ROW], COLUMNS, 10).lines[1]


def test_prose_that_can_be_done_without_is_not_put_below() -> None:
    columns = Columns(("setting", "help"), prose="help", expendable=("help",))
    rows = [{"setting": "store", "help": "Where jobs are kept, as a URL."}]
    assert table_of(rows, columns, 20).lines == ["setting", "store"]


def test_a_column_that_says_nothing_is_left_out() -> None:
    rows = [{"a": "1", "b": ""}, {"a": "2", "b": ""}]
    assert table_of(rows, Columns(("a", "b")), 80).lines == ["a", "1", "2"]


def test_wide_letters_take_the_room_that_they_take() -> None:
    rows = [{"a": "漢字", "b": "x"}, {"a": "ab", "b": "y"}]
    _, first, second = table_of(rows, Columns(("a", "b")), 80).lines
    assert cell_len(first) == cell_len(second)


WORDS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=30)
TEXT = st.lists(WORDS, max_size=8).map(" ".join)


@given(st.lists(st.fixed_dictionaries({"jobId": st.just(ID), "why": TEXT}), min_size=1))
def test_whatever_is_in_it_a_table_keeps_to_its_width_and_loses_no_letter(
    rows: list[dict[str, str]],
) -> None:
    lines = table_of(rows, Columns(("jobId", "why"), prose="why"), 60).lines
    assert all(cell_len(line) <= 60 for line in lines)
    said = "".join("".join(lines[1:]).split()).replace(ID, "")
    assert said == "".join("".join(row["why"].split()) for row in rows)


@pytest.mark.parametrize("width", [1, 2, 7, 36, 37])
def test_no_width_is_too_small(width: int) -> None:
    assert table_of([ROW, ROW], COLUMNS, width).lines
