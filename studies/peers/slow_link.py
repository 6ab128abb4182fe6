#!/usr/bin/env python3
"""Times `crest bench` with two ranks on two hosts that a slow link joins, on one machine.

  slow_link.py --rate 100mbit [--samples 12] FLAGS OF crest bench ...

The hosts are network namespaces, joined by a veth pair that tc's token bucket (tbf) limits in both
directions; --rate none leaves it unlimited. Each rank has one thread (--threads 1). The namespaces
have no names: they end with this script, even if it is killed. It needs root (CAP_NET_ADMIN and
CAP_SYS_ADMIN), ip and tc (Debian: iproute2), and a kernel with veth and tbf; without one of them it
says so and ends with code 1. CREST is the program (default: build/release/crest).

Prints one JSON line: ms, samples_ms and tok_s (of both ranks), and the bytes that each host sent.
"""
import argparse
import ctypes
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path

CLONE_NEWNET, PR_SET_PDEATHSIG = 0x40000000, 1
ADDRESSES = ["10.77.0.1", "10.77.0.2"]
PORT = 29500  # free: nothing else runs in the namespace
libc = ctypes.CDLL(None, use_errno=True)


def stop(why):
    sys.exit(f"slow_link: {why}")


def own_network():
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def die_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def second_host():
    """A process that holds the other namespace."""
    def prepare():
        die_with_parent()
        own_network()
    return subprocess.Popen(["sleep", "infinity"], preexec_fn=prepare)


def command(host, *words):
    """Runs a command on a host: None is this process's own namespace."""
    enter = [] if host is None else ["nsenter", f"--net=/proc/{host.pid}/ns/net"]
    done = subprocess.run([*enter, *words], capture_output=True, text=True)
    if done.returncode:
        stop(f"`{' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout


def connect(other, rate):
    command(None, "ip", "link", "add", "link0", "type", "veth", "peer", "name", "link0", "netns", str(other.pid))
    for host, address in zip([None, other], ADDRESSES):
        command(host, "ip", "address", "add", f"{address}/24", "dev", "link0")
        command(host, "ip", "link", "set", "lo", "up")
        command(host, "ip", "link", "set", "link0", "up")
        if rate != "none":
            command(host, "tc", "qdisc", "add", "dev", "link0", "root", "tbf", "rate", rate, "burst", "64kb",
                    "latency", "400ms")


def sent_bytes(host):
    return json.loads(command(host, "ip", "-j", "-s", "link", "show", "link0"))[0]["stats64"]["tx"]["bytes"]


def run_ranks(crest, other, flags):
    """crest bench on both hosts; the row of rank 0."""
    secret = secrets.token_hex(16)
    ranks = []
    for rank, host in enumerate([None, other]):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
               "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(PORT), "CREST_SECRET": secret}
        enter = [] if host is None else ["nsenter", f"--net=/proc/{host.pid}/ns/net"]
        words = [*enter, crest, "bench", "--json", "--no-store", "--no-mfu", "--device", "cpu", "--threads", "1",
                 *flags]
        ranks.append(subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      preexec_fn=die_with_parent))
    texts = [rank.communicate() for rank in ranks]
    for number, (rank, (_, said)) in enumerate(zip(ranks, texts)):
        if rank.returncode:
            lines = said.strip().splitlines() or ["no message"]
            stop(f"rank {number} ended with code {rank.returncode}: {lines[-1]}")
    return json.loads(texts[0][0])[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", required=True, help="of the link, as tc writes it (100mbit), or none")
    parser.add_argument("--samples", type=int, default=12)
    args, flags = parser.parse_known_args()
    root = Path(__file__).resolve().parents[2]
    crest = os.environ.get("CREST") or str(root / "build/release/crest")
    if not shutil.which(crest):
        stop(f"{crest} is missing; build it (ninja -C build/release crest), or name it in CREST")
    for tool in ["ip", "tc", "nsenter"]:
        if not shutil.which(tool):
            stop(f"{tool} is missing (Debian: iproute2, util-linux)")
    try:
        own_network()
        other = second_host()
    except (OSError, subprocess.SubprocessError) as error:
        stop(f"no network namespace: {error}. It needs root.")
    try:
        connect(other, args.rate)
        row = run_ranks(crest, other, [*flags, "--samples", str(args.samples)])
        print(json.dumps({"ms": row["step_ms_median"], "samples_ms": row["samples_ms"],
                          "tok_s": row["tokens_per_second"], "rate": args.rate,
                          "sent_bytes": [sent_bytes(None), sent_bytes(other)], "recipe": row["recipe"]}))
    finally:
        other.kill()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        stop("interrupted")
