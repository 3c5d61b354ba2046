"""Limits: how much CPU time and memory an input may take."""

import gc
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

CPU_SECONDS: Final = 1.0
_FIXED_BYTES: Final = 4 * 2**20
_BYTES_PER_BYTE: Final = 64
"""Of an array of digits each 2 bytes take 8; pointers and errors take some more."""


@contextmanager
def in_time(cpu_seconds: float = CPU_SECONDS) -> Iterator[None]:
    """Fail where the block takes more CPU time, of all threads together.

    Without the collector of garbage, which may look at all that earlier inputs have left.
    """
    gc.disable()
    try:
        began = time.process_time()
        yield
        took = time.process_time() - began
    finally:
        gc.enable()
    assert took <= cpu_seconds, f"it took {took:.2f} s of CPU time"


@contextmanager
def in_bounds(size: int, cpu_seconds: float = CPU_SECONDS) -> Iterator[None]:
    """Fail where the block takes too much memory for an input of so many bytes, or is slow.

    Tracing makes it several times slower, so that the limit is several times as long.
    """
    tracemalloc.start()
    try:
        began = tracemalloc.get_traced_memory()[0]
        with in_time(6 * cpu_seconds):
            yield
        peak = tracemalloc.get_traced_memory()[1] - began
    finally:
        tracemalloc.stop()
    most = _FIXED_BYTES + _BYTES_PER_BYTE * size
    assert peak <= most, f"it took {peak} bytes of memory for {size}"
