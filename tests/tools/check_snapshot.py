#!/usr/bin/env python3
"""Checks a memory snapshot: would PyTorch's viewer (pytorch.org/memory_viz) open it, and does it add up?

  tests/tools/check_snapshot.py snapshot.pickle              # standard library only
  tests/tools/check_snapshot.py --torch snapshot.pickle      # also runs torch.cuda._memory_viz over it
"""
import argparse
import pickle
import pickletools
import sys

# What the viewer's unpickler knows (torch/utils/viz/MemoryViz.js).
VIEWER_OPCODES = set("""APPEND APPENDS BINFLOAT BINGET BININT BININT1 BININT2 BINPUT BINUNICODE DICT EMPTY_DICT EMPTY_LIST
    EMPTY_TUPLE FRAME LIST LONG1 LONG_BINGET LONG_BINPUT MARK MEMOIZE NEWFALSE NEWTRUE NONE PROTO SETITEM SETITEMS
    SHORT_BINUNICODE STOP TUPLE TUPLE1 TUPLE2 TUPLE3""".split())
# What its functions hide from a stack, by substring: ours must not be among them.
HIDDEN_NAMES = ["unwind::unwind", "CapturedTraceback::gather", "gather_with_cpp", "_start", "__libc_start_main", "PyEval_",
                "PyObject_", "PyFunction_"]
HIDDEN_FILES = ["core/boxing", "/Register", "/Redispatch", "pythonrun.c", "Modules/main.c", "Objects/call.c",
                "Objects/methodobject.c", "pycore_ceval.h", "ceval.c", "cpython/abstract.h"]
SAFE_INTEGER = 2**53 - 1  # JavaScript's numbers
STATES = {"active_allocated", "active_pending_free", "inactive"}
ACTIONS = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"}


def check_opcodes(data):
    unknown = {op.name for op, _, _ in pickletools.genops(data)} - VIEWER_OPCODES
    assert not unknown, f"opcodes that the viewer does not know: {sorted(unknown)}"
    assert data[0] == 0x80 and 2 <= data[1] <= 4, f"the viewer reads protocols 2 to 4, this is {data[1]}"


def check_frames(frames):
    assert frames, "an empty stack reads 'allocated before _record_history was enabled'"
    for f in frames:
        assert set(f) == {"name", "filename", "line"}, f
        assert isinstance(f["line"], int) and isinstance(f["name"], str) and isinstance(f["filename"], str), f
        assert not any(h in f["name"] for h in HIDDEN_NAMES) and not any(h in f["filename"] for h in HIDDEN_FILES), f


def check_segments(segments):
    for s in segments:
        at = s["address"]
        for b in s["blocks"]:
            assert b["address"] == at and b["size"] > 0 and b["state"] in STATES, b
            check_frames(b["frames"])
            at += b["size"]  # the viewer finds blocks by adding up
        assert at == s["address"] + s["total_size"] <= SAFE_INTEGER, s["address"]
        active = sum(b["size"] for b in s["blocks"] if b["state"] == "active_allocated")
        assert s["allocated_size"] == s["active_size"] == active, s["address"]
        check_frames(s["frames"])


def check_trace(trace, segments):
    live, requested, last = {}, None, 0
    allocations = 0
    spans = [(s["address"], s["address"] + s["total_size"]) for s in segments]
    for e in trace:
        assert e["action"] in ACTIONS, e
        assert 0 < e["addr"] <= SAFE_INTEGER and e["size"] > 0 and e["time_us"] >= last, e
        check_frames(e["frames"])
        last = e["time_us"]
        end = e["addr"] + e["size"]
        assert any(a <= e["addr"] and end <= b for a, b in spans), f"outside of all segments: {e}"
        if e["action"] == "alloc":
            assert e["addr"] not in live, f"allocated twice: {e}"
            live[e["addr"]] = e["size"]
            allocations += 1
        elif e["action"] == "free_requested":
            assert live.get(e["addr"]) == e["size"], f"frees what is not there: {e}"
            requested = e["addr"]
        elif e["action"] == "free_completed":
            assert requested == e["addr"], f"completed without a request before it: {e}"
            del live[e["addr"]]
    categories = {e["category"] for e in trace if "category" in e}
    assert not categories or "unknown" in categories, "the viewer fails on categories without 'unknown'"
    left = {b["address"]: b["size"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"}
    assert left == live, "what is left at the end is not what the segments hold"
    return allocations


def check_torch(snapshot):
    from torch.cuda import _memory_viz as viz
    import torch
    made = {f.__name__: len(f(snapshot)) for f in (viz.segsum, viz.trace, viz.trace_plot, viz.segment_plot)}
    # The picture itself is drawn by a script that it would download.
    made["memory"] = len(viz.memory(snapshot, format_flamegraph=lambda lines: lines))
    made["segments"] = len(viz.segments(snapshot, format_flamegraph=lambda lines: lines))
    assert all(made.values()), made
    print(f"torch {torch.__version__}:", ", ".join(f"{name} {size} characters" for name, size in made.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("file")
    args = parser.parse_args()
    with open(args.file, "rb") as f:
        data = f.read()
    check_opcodes(data)
    snapshot = pickle.loads(data)
    assert set(snapshot) == {"segments", "device_traces", "allocator_settings", "external_annotations"}, set(snapshot)
    check_segments(snapshot["segments"])
    allocations = sum(check_trace(t, snapshot["segments"]) for t in snapshot["device_traces"])
    print(f"ok: {len(snapshot['segments'])} segments, {allocations} allocations")
    if args.torch:
        try:
            check_torch(snapshot)
        except ImportError as e:
            print(f"skipped torch.cuda._memory_viz: {e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
