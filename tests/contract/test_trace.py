"""The W3C trace context: what is well formed is kept, what is not is dropped, nothing is raised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantline.contract.trace import sound_trace_context, trace_id_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "parent",
    [
        PARENT,
        f"00-{TRACE}-{SPAN}-00",
        f"00-{TRACE}-{SPAN}-ff",
        f"cc-{TRACE}-{SPAN}-01-what-is-next",
    ],
)
def test_a_sound_parent_is_kept(parent: str) -> None:
    assert sound_trace_context({"traceparent": parent}) == {"traceparent": parent}


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "x",
        PARENT.upper(),
        f" {PARENT}",
        f"{PARENT}\n",
        f"{PARENT}-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 300}",
        f"00-{TRACE}-{SPAN}-0\N{ARABIC-INDIC DIGIT ONE}",
    ],
)
def test_without_a_sound_parent_nothing_is_kept(parent: str) -> None:
    assert sound_trace_context({"traceparent": parent, "tracestate": "a=1"}) is None


@pytest.mark.parametrize(
    "state",
    [
        "a=1",
        "a=1,b=2",
        "a=1 , b=2",
        "fw529a3039@dt=FfAAAAH, rojo=00f067aa0ba902b7",
        "a=x y",
        ",".join(f"k{number}=v" for number in range(32)),
        "a=1,,b=2",
    ],
)
def test_a_sound_state_is_kept(state: str) -> None:
    kept = sound_trace_context({"traceparent": PARENT, "tracestate": state})
    assert kept == {"traceparent": PARENT, "tracestate": state}


@pytest.mark.parametrize(
    "state",
    [
        "",
        ",",
        "a",
        "=1",
        "A=1",
        "a=1,a=2",
        "a=1;b=2,c",
        "a=x=y",
        "a=\x01",
        "a=é",
        "a=1\n",
        ",".join(f"k{number}=v" for number in range(33)),
        f"a={'x' * 600}",
    ],
)
def test_a_broken_state_costs_only_itself(state: str) -> None:
    kept = sound_trace_context({"traceparent": PARENT, "tracestate": state})
    assert kept == {"traceparent": PARENT}


def test_headers_are_found_in_any_case_and_nothing_else_comes_along() -> None:
    carrier = {"Traceparent": PARENT, "TraceState": "a=1", "baggage": "secret=1", "x": "y"}
    assert sound_trace_context(carrier) == {"traceparent": PARENT, "tracestate": "a=1"}


def test_what_is_no_text_is_no_trace() -> None:
    assert sound_trace_context(None) is None
    assert sound_trace_context({}) is None
    assert sound_trace_context({"traceparent": 7}) is None


@given(st.dictionaries(st.sampled_from(["traceparent", "tracestate", "x"]), st.text()))
def test_no_text_is_ever_an_error(carrier: dict[str, str]) -> None:
    kept = sound_trace_context(carrier)
    assert kept is None or kept.items() <= carrier.items()


def test_the_trace_has_an_id() -> None:
    assert trace_id_of({"traceparent": PARENT}) == TRACE
    assert trace_id_of({"traceparent": "x"}) is None
    assert trace_id_of(None) is None
