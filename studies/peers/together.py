#!/usr/bin/env python3
"""Several peers at a time: they start and compile beside each other, and are measured one after another.

  together.py JOBS RESULTS [--deadline SECONDS]   measures the jobs and writes their lines to RESULTS
  TOGETHER=RESULTS PEER WORDS                     prints the line of the key "PEER WORDS"

A line of JOBS is `KEY[,KEY..] | COMMAND | TURN; TURN ..`: a key for every line that the command prints. A turn is a line
for the standard input of a command with --turns (torch_gpt2.py). A command without turns runs beside the others, so its
times mean nothing. Turns are given in the order of the file, when all commands are ready. A command that is not ready at
the deadline is left out. Memory and CPU have to suffice for all of them.

For the lab, PEER is a link to this file with the name of a peer: its rows read what was measured before.
"""
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path


class Job:
    def __init__(self, line):
        keys, command, turns = (part.strip() for part in line.split("|"))
        self.keys, self.command = keys.split(","), command
        self.turns = [turn.strip() for turn in turns.split(";")] if turns else []
        self.lines, self.ready, self.ended, self.changed = [], False, False, threading.Condition()

    def start(self):
        self.process = subprocess.Popen(shlex.split(self.command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                if line.strip() == "ready": self.ready = True
                elif line.startswith("{"): self.lines.append(line)
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait(self, condition, deadline):
        with self.changed:
            self.changed.wait_for(lambda: condition() or self.ended, max(0.0, deadline - time.time()))
            return condition()

    def give_turns(self, deadline):
        for turn in self.turns:
            with self.changed:
                self.ready = False
            if self.ended: return
            try:
                self.process.stdin.write(turn + "\n")
                self.process.stdin.flush()
            except BrokenPipeError:  # it died between two turns
                return
            if not self.wait(lambda: self.ready, deadline): return
        self.process.stdin.close()

    def stop(self):
        if self.process.poll() is None: self.process.kill()
        self.process.wait()


def measure(jobs, results, deadline):
    begin = time.time()
    say = lambda what: print(f"{time.time() - begin:6.1f} s {what}", file=sys.stderr, flush=True)
    for job in jobs:
        job.start()
    with open(results, "w") as out:
        def keep(job):
            if len(job.lines) < len(job.keys):
                say(f"{job.command}: {len(job.lines)} of {len(job.keys)} lines")
            for key, line in zip(job.keys, job.lines):
                out.write(json.dumps({"key": key, "line": json.loads(line)}) + "\n")
            out.flush()
        for job in jobs:
            ok = job.wait(lambda: job.ready if job.turns else len(job.lines) >= len(job.keys), deadline)
            say(f"{'ready' if ok else 'NOT ready'}: {job.keys[0]}")
            if not ok or not job.turns:
                job.stop()
                keep(job)
        for job in jobs:
            if job.turns and job.process.poll() is None:
                job.give_turns(time.time() + 60)
                try:
                    job.process.wait(5)  # its memory is free before the next turn
                except subprocess.TimeoutExpired:
                    pass
                job.stop()
                say(f"measured: {job.keys[0]}")
                keep(job)
    for job in jobs:
        job.stop()


def print_line(results):
    key = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    for line in Path(results).read_text().splitlines():
        row = json.loads(line)
        if row["key"] == key:
            print(json.dumps(row["line"]))
            return
    raise SystemExit(f"together: {results} has no line of {key}")


def main():
    if os.environ.get("TOGETHER"): return print_line(os.environ["TOGETHER"])
    words = sys.argv[1:]
    deadline = time.time() + (float(words[3]) if len(words) == 4 and words[2] == "--deadline" else 600)
    if len(words) not in (2, 4): raise SystemExit(__doc__)
    lines = [line for line in Path(words[0]).read_text().splitlines() if line.strip() and line[0] != "#"]
    measure([Job(line) for line in lines], words[1], deadline)


if __name__ == "__main__":
    main()
