#!/usr/bin/env python3
"""Kills, stops and freezes ranks of `crest train --device cuda --ranks N` at random: all processes end, with one message.

  lost-ranks.py CREST DATA [--ranks 2] [--kills 10] [--stops 3] [--freezes 0] [--watchdog 5] [--hang 300] [--model nano] [FLAG..]

A frozen rank's watchdog still answers. Prints a line for each case and ends with 1 if one failed. A process that outlives its case is killed.
"""
import argparse, ctypes, os, random, re, shutil, signal, subprocess, sys, tempfile, threading, time

ap = argparse.ArgumentParser()
ap.add_argument("crest"), ap.add_argument("data")
for name, value in [("ranks", 2), ("kills", 10), ("stops", 3), ("freezes", 0), ("watchdog", 5), ("seed", 1)]:
    ap.add_argument("--" + name, type=int, default=value)
ap.add_argument("--model", default="nano")
ap.add_argument("--device", default="cuda")
ap.add_argument("--hang", type=int, default=300, help="seconds until work without progress hangs: ten times --watchdog, at least 300")
o, more = ap.parse_known_args()
random.seed(o.seed)
START, END = 60, 20  # seconds: for five steps; from a kill to the end of all processes


def ranks_of(launcher):
    """{rank: process id} of a launcher's children."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1]) != launcher:
                continue
            variables = open(f"/proc/{pid}/environ").read().split("\0")
            found.update({int(v[5:]): int(pid) for v in variables if v.startswith("RANK=")})
        except (OSError, ValueError):
            pass
    return found


FREEZE = "FREEZE"  # the thread that trains stands still, all others go on
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def hit(pid, how):
    if how != FREEZE:
        return os.kill(pid, how)
    seize, interrupt = 0x4206, 0x4207
    for request in (seize, interrupt):
        if libc.ptrace(request, pid, None, None) != 0:
            raise RuntimeError(f"ptrace: {os.strerror(ctypes.get_errno())}")

    def reap():  # a traced thread that ends waits for its tracer
        try:
            while not os.WIFSIGNALED(os.waitpid(pid, 0x40000000)[1]):
                pass
        except ChildProcessError:
            pass

    threading.Thread(target=reap, daemon=True).start()


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def name_of(how):
    return how if how == FREEZE else how.name


def case(number, how):
    folder = tempfile.mkdtemp(prefix="crest-lost-")
    log = os.path.join(folder, "run", "log.jsonl")
    launcher = subprocess.Popen(
        [o.crest, "train", "--device", o.device, "--data", o.data, "--model", o.model, "--batch", "4", "--ranks",
         str(o.ranks), "--watchdog", str(o.watchdog), "--steps", "1000000", "--schedule", "constant", "--val-every", "0",
         "--save-every", "0", "--no-store", "--out", os.path.join(folder, "run"), *more],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    pids, problem, seconds = {}, "", 0
    try:
        begin = time.monotonic()
        while not (os.path.exists(log) and sum(1 for _ in open(log)) >= 5):
            if launcher.poll() is not None or time.monotonic() > begin + START:
                raise RuntimeError("did not begin")
            time.sleep(0.05)
        time.sleep(random.uniform(0, 0.5))
        pids = ranks_of(launcher.pid)
        if len(pids) != o.ranks:
            raise RuntimeError(f"found ranks {sorted(pids)}")
        rank = random.randrange(o.ranks)
        hit(pids[rank], how)
        begin = time.monotonic()
        err = launcher.communicate(timeout=END + {signal.SIGSTOP: o.watchdog, FREEZE: o.hang}.get(how, 0))[1]
        seconds = time.monotonic() - begin
        errors = re.findall(r"^crest: error: .*$", err, re.M)
        print(f"{number}: {name_of(how)} to rank {rank}, all ended after {seconds:.1f} s: {' | '.join(errors)[:300]}", flush=True)
        named = [f"rank {rank} "] + ["no rank finishes its work"] * (how == FREEZE)  # by GPUs, which wait unseen
        if len(errors) != 1 or not any(name in errors[0] for name in named):
            problem = f"{len(errors)} messages, or another rank is named:\n{err[-1500:]}"
        elif "step " not in errors[0]:
            problem = "no step is named"
        elif launcher.returncode == 0:
            problem = "exit code 0"
        elif left := [r for r, p in pids.items() if alive(p)]:
            problem = f"ranks {left} are left"
    except subprocess.TimeoutExpired:
        problem = "the processes did not end"
    except RuntimeError as e:
        problem = str(e)
    finally:
        for pid in [launcher.pid, *pids.values()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if problem and launcher.poll() is None:
            launcher.wait()
        shutil.rmtree(folder, ignore_errors=True)
    if problem:
        print(f"{number}: {name_of(how)}: FAILED: {problem}", flush=True)
    return problem == "", seconds


failed = False
for name, how, count in (("kills", signal.SIGKILL, o.kills), ("stops", signal.SIGSTOP, o.stops), ("freezes", FREEZE, o.freezes)):
    results = [case(i, how) for i in range(count)]
    failed |= not all(ok for ok, _ in results)
    if results:
        print(f"seen: {sum(ok for ok, _ in results)} of {count} {name} ended all processes with one message, "
              f"after at most {max(s for _, s in results):.1f} s")
sys.exit(failed)
