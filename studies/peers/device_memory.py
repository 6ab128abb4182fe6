"""Memory of a GPU as nvidia-smi shows it, through NVML: bytes in use, of one process or of all."""
import ctypes
import os
import threading
import time


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class DeviceMemory:
    """Starts no CUDA context, so it can ask before there is one."""

    def __init__(self, index=0):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        self._check(self.nvml.nvmlInit_v2())
        self._check(self.nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self.device)))

    @staticmethod
    def _check(code):
        if code: raise SystemExit(f"NVML: error {code}")

    def of_all(self):
        """Bytes in use on the device."""
        memory = _Memory()
        self._check(self.nvml.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)))
        return memory.used

    def of_this_process(self):
        """Bytes in use by this process: its context and all of its allocations."""
        count, list_of = ctypes.c_uint(64), (_Process * 64)()
        self._check(self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(count), list_of))
        for p in list_of[:count.value]:
            if p.pid == os.getpid(): return p.bytes
        raise SystemExit("NVML does not list this process")


class Peak:
    """The most bytes in use by this process inside a `with`, asked some 1000 times a second."""

    def __init__(self, memory):
        self.memory, self.most, self.asked, self.done = memory, 0, 0, False

    def __enter__(self):
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self):
        while not self.done:
            self.most, self.asked = max(self.most, self.memory.of_this_process()), self.asked + 1
            time.sleep(0.0005)

    def __exit__(self, *_):
        self.done = True
        self.thread.join()
        self.most = max(self.most, self.memory.of_this_process())
