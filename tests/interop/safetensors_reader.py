#!/usr/bin/env python3
"""Python's safetensors reads every safetensors file below a folder. Usage: SCRIPT FOLDER..."""
import json
import os
import sys

import numpy as np
import safetensors
from safetensors import safe_open

files = tensors = 0
for root in sys.argv[1:]:
    for folder, _, names in os.walk(root):
        for name in sorted(n for n in names if n.endswith(".safetensors")):
            path = os.path.join(folder, name)
            with open(path, "rb") as f:
                header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
            header.pop("__metadata__")
            with safe_open(path, framework="np") as f:
                assert f.metadata()["format"] == "pt", path
                assert sorted(f.keys()) == sorted(header), path
                for key in f.keys():
                    if header[key]["dtype"] == "BF16":  # NumPy has no such type; the library has checked its place
                        assert f.get_slice(key).get_shape() == header[key]["shape"], (path, key)
                    else:
                        value = f.get_tensor(key)
                        assert list(value.shape) == header[key]["shape"], (path, key)
                        assert value.dtype.kind != "f" or np.isfinite(value).all(), (path, key)
                    tensors += 1
            files += 1
assert files >= 2, "no files"
print(f"ok: safetensors {safetensors.__version__} reads {files} files with {tensors} tensors")
