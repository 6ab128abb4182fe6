"""What the scripts of this folder share: running Crest, token data as llm.c reads it, distances."""
import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np

CREST = os.environ["CREST_BINARY"]


def crest(*arguments, fails=False):
    """Runs crest; returns its standard output, or its standard error where it must fail."""
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="", GOMP_SPINCOUNT="4000")
    done = subprocess.run([CREST, *map(str, arguments)], capture_output=True, text=True, env=environment)
    assert (done.returncode != 0) == fails, f"crest {arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if fails else done.stdout


def run_line(said):
    """Runs the command that a message of Crest advises, as it is printed, with this interpreter as python."""
    line = re.search(r"python -c .*", said).group(0)
    subprocess.run(line.replace("python", shlex.quote(sys.executable), 1), shell=True, check=True)


def write_shard(path, tokens):
    """As llm.c's data scripts write it."""
    header = np.zeros(256, dtype=np.int32)
    header[:3] = 20240520, 1, len(tokens)
    with open(path, "wb") as f:
        f.write(header.tobytes())
        f.write(np.asarray(tokens, dtype=np.uint16).tobytes())


def write_data(folder, tokens):
    """A folder of data with the same tokens in both splits."""
    os.makedirs(folder, exist_ok=True)
    write_shard(f"{folder}/some_train_000001.bin", tokens)
    write_shard(f"{folder}/some_val_000000.bin", tokens)


def distance(a, b):
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    assert a.shape == b.shape, (a.shape, b.shape)
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def crest_logits(model, tokens, work):
    """(logits [T, V], loss) of a folder in fp32."""
    from safetensors.numpy import load_file
    write_data(f"{work}/logits-data", tokens)
    out = f"{work}/logits.safetensors"
    said = crest("eval", "--run", model, "--data", f"{work}/logits-data", "--precision", "fp32", "--device", "cpu",
                 "--batch", 1, "--seq", len(tokens) - 1, "--logits", out, "--json")
    file = load_file(out)
    assert (file["tokens"] == tokens[:-1]).all()
    return file["logits"], json.loads(said)["loss"]
