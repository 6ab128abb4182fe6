#!/usr/bin/env python3
"""Bandwidth between a GPU and pinned host memory: by size, direction, kind of memory and place, and for pieces of state
through 2 to 4 device buffers as --offload optimizer moves them. Needs the driver only; about 10 s and 9 GiB of host
memory. Prints lines of JSON, in GB/s a direction."""
import ctypes as C, json, os, threading, time

cu = C.CDLL("libcuda.so.1")
MiB, u64, P = 1 << 20, C.c_uint64, C.c_void_p
out = {}

def ck(r, what):
    if r: raise RuntimeError(f"{what}: CUDA error {r}")

def call(name, *a): ck(getattr(cu, name)(*a), name)

call("cuInit", 0)
dev, ctx = C.c_int(), P()
call("cuDeviceGet", C.byref(dev), 0)
call("cuDevicePrimaryCtxRetain", C.byref(ctx), dev)
call("cuCtxSetCurrent", ctx)
bus = C.create_string_buffer(32)
call("cuDeviceGetPCIBusId", bus, 32, dev)
bus = bus.value.decode().lower()
bus = bus[-12:] if len(bus) > 12 else bus

def read(path):
    try: return open(path).read().strip()
    except OSError as e: return f"({e.strerror})"

node = f"/sys/bus/pci/devices/{bus}/"
out["pci"] = {k: read(node + k) for k in ("numa_node", "local_cpulist", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width")}
out["nodes"] = {n: read(f"/sys/devices/system/node/{n}/cpulist") for n in sorted(os.listdir("/sys/devices/system/node")) if n.startswith("node")} if os.path.isdir("/sys/devices/system/node") else {}
out["cpus"] = sorted(os.sched_getaffinity(0))
out["hugepages"] = read("/sys/kernel/mm/transparent_hugepage/enabled")
out["cpu"] = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "")
print(json.dumps(out), flush=True)

def stream():
    s = P(); call("cuStreamCreate", C.byref(s), 1); return s
def event(timing=False):
    e = P(); call("cuEventCreate", C.byref(e), 0 if timing else 2); return e
def device(n):
    p = u64(); call("cuMemAlloc_v2", C.byref(p), C.c_size_t(n)); return p.value
def h2d(d, h, n, s): call("cuMemcpyHtoDAsync_v2", u64(d), P(h), C.c_size_t(n), s)
def d2h(h, d, n, s): call("cuMemcpyDtoHAsync_v2", P(h), u64(d), C.c_size_t(n), s)
def sync(): call("cuCtxSynchronize")

def touch(p, n, threads=16):
    part = (n + threads - 1) // threads
    ts = [threading.Thread(target=C.memset, args=(p + i * part, 1, min(part, n - i * part))) for i in range(threads) if i * part < n]
    for t in ts: t.start()
    for t in ts: t.join()

seconds = {}
def pinned(n, flags=0, name="alloc"):
    p = P(); t = time.time()
    call("cuMemHostAlloc", C.byref(p), C.c_size_t(n), C.c_uint(flags))
    a = time.time() - t; t = time.time()
    C.memset(p.value, 1, n)
    seconds[name] = {"GiB": n / 2**30, "alloc_s": a, "memset_s": time.time() - t}
    return p.value

libc = C.CDLL(None, use_errno=True)
libc.mmap.restype = P
libc.mmap.argtypes = [P, C.c_size_t, C.c_int, C.c_int, C.c_int, C.c_long]
def registered(n, huge, name):
    t = time.time()
    p = libc.mmap(None, n, 3, 0x22, -1, 0)
    advice = libc.madvise(P(p), C.c_size_t(n), 14) if huge else 0
    touch(p, n); a = time.time() - t; t = time.time()
    call("cuMemHostRegister_v2", P(p), C.c_size_t(n), C.c_uint(0))
    seconds[name] = {"GiB": n / 2**30, "touch_s": a, "register_s": time.time() - t, "madvise": advice}
    return p

big = 4096 * MiB
plain = pinned(big, 0, "cuMemHostAlloc")
wc = pinned(big // 4, 4, "write-combined")
huge = registered(big, True, "registered huge pages")
small = registered(big // 4, False, "registered 4 KiB pages")
print(json.dumps({"seconds": seconds}), flush=True)
dev_in, dev_out = device(big // 4), device(big // 4)
si, so, si2, so2, sc = (stream() for _ in range(5))

def rate(size, do_in, do_out, host=None, total=None, streams=1, walk=None, host_out=None):
    """GB/s a direction; host memory is walked through `walk` bytes (default: size)."""
    host = host or plain
    walk = walk or 2 * size  # out uses the second half if one region serves both
    half = walk // 2 // size * size
    host_out = host_out or host + half
    total = total or max(size, 2048 * MiB)
    n = max(1, total // size)
    piece = size // streams
    ins, outs = [si, si2][:streams], [so, so2][:streams]
    for warm in (1, 0):
        m = min(n, 2) if warm else n
        sync(); t = time.perf_counter()
        for i in range(m):
            o = (i * size) % half
            for k in range(streams):
                if do_in: h2d(dev_in + (i * size + k * piece) % (big // 4 // size * size), host + o + k * piece, piece, ins[k])
                if do_out: d2h(host_out + o + k * piece, dev_out + (i * size + k * piece) % (big // 4 // size * size), piece, outs[k])
        sync()
    return round(n * size / (time.perf_counter() - t) / 1e9, 2)

sizes = [1, 4, 16, 64, 256, 1024]
table = {}
for m in sizes:
    s = m * MiB
    w = max(2 * s, big)
    table[f"{m} MiB"] = {"in": rate(s, 1, 0, walk=w), "out": rate(s, 0, 1, walk=w), "both": rate(s, 1, 1, walk=w)}
print(json.dumps({"cuMemHostAlloc, walking through 4 GiB": table}), flush=True)
s = 64 * MiB
kinds = {
    "cuMemHostAlloc, one 64 MiB piece again and again": dict(walk=2 * s),
    "huge pages, walking": dict(host=huge, walk=big),
    "registered 4 KiB pages, walking": dict(host=small, walk=big // 4),
    "write-combined in, plain out": dict(host=wc, host_out=plain, walk=big // 4),
    "two streams a direction": dict(walk=big, streams=2),
}
more = {k: {"in": rate(s, 1, 0, **a), "out": rate(s, 0, 1, **a), "both": rate(s, 1, 1, **a)} for k, a in kinds.items()}
print(json.dumps({"pieces of 64 MiB": more}), flush=True)

# Memory first touched by each node's processors.
def cpus(text): return {c for p in text.split(",") if p for c in range(int(p.split("-")[0]), int(p.split("-")[-1]) + 1)}
places, all_cpus = {}, os.sched_getaffinity(0)
for name, text in out["nodes"].items():
    try:
        own = cpus(text) & all_cpus
        if not own: continue
        os.sched_setaffinity(0, own)
        p = pinned(big // 4, 0, "cuMemHostAlloc on " + name)
        places[name] = {"in": rate(s, 1, 0, host=p, walk=big // 4), "out": rate(s, 0, 1, host=p, walk=big // 4), "both": rate(s, 1, 1, host=p, walk=big // 4)}
    finally:
        os.sched_setaffinity(0, all_cpus)
print(json.dumps({"first touched by processors of": places}), flush=True)

# --offload optimizer: piece k comes in, is updated (a memset stands for it) and goes out, through `buffers` device buffers.
def pieces(size, buffers, n):
    ev_in, ev_upd, ev_out = ([event() for _ in range(n)] for _ in range(3))
    at = [dev_in + i * size for i in range(buffers)]
    m = big // size
    sync(); t = time.perf_counter()
    for k in range(n):
        h, d = plain + (k % m) * size, at[k % buffers]
        if k >= buffers: call("cuStreamWaitEvent", si, ev_out[k - buffers], 0)
        h2d(d, h, size, si); call("cuEventRecord", ev_in[k], si)
        call("cuStreamWaitEvent", sc, ev_in[k], 0)
        call("cuMemsetD8Async", u64(d), C.c_ubyte(0), C.c_size_t(size), sc); call("cuEventRecord", ev_upd[k], sc)
        call("cuStreamWaitEvent", so, ev_upd[k], 0)
        d2h(h, d, size, so); call("cuEventRecord", ev_out[k], so)
    sync()
    return round(n * size / (time.perf_counter() - t) / 1e9, 2)
ring = {}
for m in (16, 64, 128, 256):
    for b in (2, 3, 4):
        n = max(12, 3072 // m)
        ring[f"{m} MiB, {b} buffers"] = pieces(m * MiB, b, n)
print(json.dumps({"pieces through device buffers, GB/s a direction": ring}), flush=True)
