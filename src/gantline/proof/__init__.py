"""Proof: what was asked of a store and what it answered, recorded, and judged against its promises.

history = MemoryHistory()
store = recorded(store, history, process="worker-1")
...
report = check(history.calls, rest=await read_rest(store))
assert not report.violations, report
"""
