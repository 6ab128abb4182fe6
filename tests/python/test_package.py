"""python/crest against the program: what it returns is what the command line prints."""

import html
import json
import os
import pathlib
import pickle
import re
import signal
import sqlite3
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

import crest

SETTINGS = {"model": "nano", "tokenizer": "bytes", "seq": 32, "batch": 2, "steps": 3, "val_batches": 1, "show": False}


def printed(*arguments, cwd):
    done = subprocess.run([crest.program(), *arguments, "--json"], cwd=cwd, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


@pytest.fixture(autouse=True)
def in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def trained(folder):
    before = os.getcwd()
    os.chdir(folder)
    (folder / "input.txt").write_text("".join(f"The number {i} is followed by {i + 1}.\n" for i in range(400)))
    run = crest.train("input.txt", out="runs/first", device="cpu", **SETTINGS)
    os.chdir(before)
    return run


def test_runs_are_those_of_the_program(trained, folder):
    crest.command("bench", model="nano", batch=1, seq=16, samples=2, warmup=0, no_mfu=True, device="cpu", name="measured")
    rows = printed("runs", "list", cwd=folder)
    runs = crest.runs()
    assert [r.kind for r in runs] == ["bench", "train"]
    for run, row in zip(runs, rows):
        for key in row:
            if not key.startswith("environment"):  # null in a list
                assert getattr(run, key) == row[key], key
        assert printed("runs", "show", str(run.id), cwd=folder)["environment"] == run.environment
    assert crest.runs(kind="train") == [trained] == crest.runs(status="done", name=trained.name)
    assert crest.runs(limit=1) == runs[:1]
    for which in (trained.id, trained.uid, trained.uid[:6], trained.name, "runs/first", folder / "runs/first"):
        assert crest.run(which) == trained
    measured = crest.run("measured")
    shown = printed("runs", "show", "measured", cwd=folder)
    assert [row["ms"] for row in shown["samples"]] == measured.samples["ms"].tolist() and len(measured.samples["ms"]) == 2
    assert sorted(shown["documents"]) == measured.documents and "plan" in measured.documents
    assert measured.document("plan") == printed("runs", "show", "measured", "--document", "plan", cwd=folder)


def test_log_is_that_of_the_program(trained, folder):
    rows = printed("runs", "show", trained.uid, cwd=folder)["log"]
    log = trained.log
    assert set(log) >= {"step", "loss", "val_loss", "lr", "grad_norm", "step_ms", "tokens_per_second", "skipped"}
    assert len(rows) == len(log["step"]) > 3
    for key, column in log.items():
        for row, value in zip(rows, column.tolist()):
            assert value != value if row.get(key) is None else value == row[key], key
    steps, losses = log.column("loss")
    assert steps.tolist() == [1, 2, 3] and losses[-1] == trained.result["loss"]
    assert (log["step"].dtype, log["skipped"].dtype, log["loss"].dtype) == (np.int64, np.bool_, np.float64)


def test_log_as_a_data_frame(trained):
    pandas = pytest.importorskip("pandas")
    frame = trained.log.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and frame["loss"].dropna().tolist() == trained.log.column("loss")[1].tolist()


def test_a_running_run_whose_process_ended_is_lost(trained, folder):
    copy = folder / "copy.db"
    with sqlite3.connect("crest.db") as source, sqlite3.connect(copy) as target:
        source.backup(target)
        target.execute("UPDATE runs SET status = 'running' WHERE kind = 'train'")
        target.execute("UPDATE runs SET started = '2000', name = 'alive', status = 'running' WHERE kind = 'bench'")
        stat = open("/proc/self/stat").read().rpartition(")")[2].split()
        target.execute("UPDATE runs SET pid = ?, pid_started = ? WHERE kind = 'bench'", (os.getpid(), int(stat[19])))
    target.close(), source.close()
    runs = crest.runs(store=copy)
    assert [r.status for r in runs] == [r["status"] for r in printed("runs", "list", "--store", str(copy), cwd=folder)]
    assert runs[0].status == "lost" and crest.runs(status="lost", store=copy) == runs[:1]


def test_views_that_sqlite_cannot_parse_are_left_out(trained, folder):
    file = folder / "views.db"
    with sqlite3.connect("crest.db") as source, sqlite3.connect(file) as target:
        source.backup(target)
        target.execute("PRAGMA writable_schema = ON")
        target.execute("UPDATE sqlite_schema SET sql = replace(sql, 'SELECT', 'SELECT x ->>> y,') WHERE type = 'view'")
    target.close(), source.close()
    with pytest.raises(sqlite3.DatabaseError, match="malformed"):
        sqlite3.connect(file).execute("SELECT * FROM runs")
    assert crest.run(trained.uid, store=file).log["step"].tolist() == trained.log["step"].tolist()


def test_databases_that_are_none(folder):
    with pytest.raises(crest.CrestError, match="no run database"):
        crest.runs(store="absent.db")
    (folder / "text.db").write_text("text" * 2000)
    with pytest.raises(crest.CrestError, match="could not be read"):
        crest.runs(store="text.db")
    for mark, version, reason in ((7, 1, "no run database of Crest"), (0x43525354, 3, "newer Crest")):
        file = folder / f"{mark}.db"
        with sqlite3.connect(file) as database:
            database.executescript(f"PRAGMA application_id = {mark}; PRAGMA user_version = {version}; CREATE TABLE t (x)")
        with pytest.raises(crest.CrestError, match=reason):
            crest.runs(store=file)
    with pytest.raises(crest.CrestError, match="no run '99'"):
        crest.run(99)


def test_weights_are_mapped_and_shared(trained, folder):
    weights = crest.weights(trained)
    newest = folder / "runs/first/checkpoints/step-000003"
    raw = (newest / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__")
    assert set(weights) == set(header) and len(weights) == len(header)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = weights[name]
        assert array.tobytes() == raw[8 + length + begin : 8 + length + end]
        assert list(array.shape) == entry["shape"] == list(weights.shape(name)) and weights.dtype(name) == entry["dtype"] == "F32"
        assert not array.flags.owndata
    name = next(iter(weights))
    shared = np.from_dlpack(weights[name])
    assert np.shares_memory(shared, weights[name])
    # A change stays in this process.
    weights[name][...] = 7
    assert (shared == 7).all() and not (crest.weights("runs/first")[name] == 7).all()
    older = newest.parent / "best"  # as a file system without links and older runs have it
    older.write_text("step-000003\n")
    for which in ("runs/first", newest, newest / "model.safetensors", newest.parent / "latest", older):
        assert set(crest.weights(which)) == set(weights)
    older.unlink()


def safetensors(file, header, data):
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_weights_in_dtypes_without_numpy(folder):
    values = np.array([1.0, -2.5, 3.140625], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    half, empty = np.array([[1, 2]], np.float16), {"dtype": "F32", "shape": [0, 4], "data_offsets": [0, 0]}
    header = {
        "a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]},
        "b": {"dtype": "F16", "shape": [1, 2], "data_offsets": [6, 10]},
        "c": {"dtype": "F32", "shape": [], "data_offsets": [10, 14]},  # not on a multiple of four
        "d": empty,
    }
    (folder / "split").mkdir()
    safetensors(folder / "split/one.safetensors", header, bits.tobytes() + half.tobytes() + np.float32(5).tobytes())
    safetensors(folder / "split/two.safetensors", {"e": empty}, b"")
    index = {"weight_map": {**{name: "one.safetensors" for name in header}, "e": "two.safetensors"}}
    (folder / "split/model.safetensors.index.json").write_text(json.dumps(index))
    weights = crest.weights("split")
    assert list(weights) == ["a", "b", "c", "d", "e"]
    assert weights.float32("a").tolist() == values.tolist() and weights.bits("a").tolist() == bits.tolist()
    assert weights["b"].tolist() == [[1, 2]] and weights["c"] == 5 and weights["d"].shape == (0, 4)
    try:
        import ml_dtypes
    except ImportError:
        with pytest.raises(crest.CrestError, match="BF16.*\n.*float32"):
            weights["a"]
    else:
        assert weights["a"].dtype == ml_dtypes.bfloat16 and weights["a"].tolist() == values.tolist()


@pytest.mark.parametrize(
    "entry, reason",
    [
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "does not fit"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "does not fit"),  # longer than the file
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "no counts"),
        ({"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}, "no counts"),
        ({"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}, "does not know"),
        ({"dtype": "F32", "shape": [1]}, "not the JSON of tensors"),
    ],
)
def test_damaged_weights(folder, entry, reason):
    safetensors(folder / "bad.safetensors", {"a": entry}, b"1234")
    with pytest.raises(crest.CrestError, match=reason):
        crest.weights("bad.safetensors")


def test_files_that_hold_no_weights(folder):
    for data, reason in ((b"", "no header"), (b"\xff" * 16, "does not fit"), (struct.pack("<Q", 2) + b"[]", "not the JSON")):
        (folder / "bad.safetensors").write_bytes(data)
        with pytest.raises(crest.CrestError, match=reason):
            crest.weights("bad.safetensors")
    (folder / "empty").mkdir()
    with pytest.raises(crest.CrestError, match="no model.safetensors"):
        crest.weights("empty")


def test_plan_and_tune_are_those_of_the_program(folder):
    flags = ("--model", "nano", "--batch", "4", "--device", "h100")
    assert crest.plan(model="nano", batch=4, device="h100") == {**printed("plan", *flags, cwd=folder), "seconds": pytest.approx(0, abs=60)}
    table = crest.plan(model="nano", device=["h100", "a100"])
    assert [row["device"] for row in table["devices"]] == ["h100", "a100"]
    assert not crest.plan(model="nano", memory="1MiB", device="cpu")["fit"]["fits"]
    best = crest.tune(model="nano", batch=4, device="h100", vary=["attention=flash", "recompute=none,full"])
    flags += ("--vary", "attention=flash", "--vary", "recompute=none,full")
    assert best == {**printed("tune", *flags, cwd=folder), "seconds": pytest.approx(0, abs=60)}


def test_a_report_is_a_page(trained, folder):
    report = crest.report(trained, title="A <small> run")
    data = printed("report", trained.uid, "--title", "A <small> run", "-o", "report.html", cwd=folder)
    assert report.data == data and report.summary == data["summary"] and repr(report).startswith("A <small> run\n")
    report.save("saved.html")
    assert (folder / "saved.html").read_text() == report.html == (folder / "report.html").read_text()
    shown = report._repr_html_()
    assert shown.count("<") == 2 and html.unescape(shown.split('"')[1]) == report.html
    with pytest.raises(crest.CrestError, match="at least one"):
        crest.report([])


def test_errors_have_message_and_code(folder):
    with pytest.raises(crest.CrestError, match="Did you mean 'nano'") as caught:
        crest.plan(model="nanno")
    assert caught.value.code == 2 and caught.value.message.startswith("--model: 'nanno'")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.code, again.message) == (2, caught.value.message)
    with pytest.raises(crest.CrestError) as caught:
        crest.train("absent.txt", show=False)
    assert caught.value.code == 1 and "absent.txt" in caught.value.message
    with pytest.raises(crest.CrestError, match="no_store"):
        crest.train("absent.txt", no_store=True)


def test_training_from_an_iterator_of_documents(folder):
    made = crest.prepare((f"Document {i} " * 20 for i in range(50)), "data/made", tokenizer="bytes")
    assert made["documents"] == 50 and made["format"]
    assert crest.train(data="data/made", out="runs/made", **{k: v for k, v in SETTINGS.items() if k != "tokenizer"}).status == "done"

    def interrupted():
        yield from ["text " * 100] * 20
        raise RuntimeError("the source ended early")

    with pytest.raises(RuntimeError, match="ended early"):
        crest.prepare(interrupted(), "data/part")
    assert not os.path.exists("data/part")
    with pytest.raises(crest.CrestError, match="a str or a dict, not int"):
        crest.prepare([1], "data/part")


BATCHES = {"model": "nano", "vocab": 257, "steps": 3, "device": "cpu", "show": False, "overwrite": True}


def test_batches_give_the_losses_of_prepared_data(folder):
    crest.prepare([f"Document {i}. " for i in range(9)], "data/window", tokenizer="bytes", val_fraction=0.4)
    (shard,) = (folder / "data/window").glob("train*.bin")
    tokens = np.fromfile(shard, "<u2", offset=1024)
    flags = {**BATCHES, "batch": 2, "seq": len(tokens) - 1, "val_every": 0}  # every sample is the whole split
    prepared = crest.train(data="data/window", out="runs/prepared", **{**flags, "vocab": None})

    def rows(n):
        for _ in range(n):
            yield np.stack([tokens, tokens])

    fed = crest.train(batches=rows(9), out="runs/fed", **flags)
    assert fed.log.column("loss")[1].tolist() == prepared.log.column("loss")[1].tolist()
    # The iterator ends early: the run continues with one that begins anew.
    part = crest.train(batches=rows(2), out="runs/fed", **flags)
    assert (part.status, part.result["ended"], part.result["step"]) == ("done", "stream", 2)
    rest = crest.train(resume="runs/fed", batches=rows(3), show=False)
    assert rest.log.column("loss")[1].tolist() == prepared.log.column("loss")[1].tolist()


def test_batches_follow_the_first_array(folder):
    run = crest.train(batches=[[[1, 2, 3]] * 4] * 5, validation=[[3, 2, 1]], out="runs/lists", **BATCHES)
    assert (run.recipe["batch"], run.recipe["seq"], run.result["ended"]) == (4, 2, "steps")
    assert run.result["val_loss"] > 0

    def broken():
        yield np.zeros((1, 3), int)
        raise RuntimeError("the source ended early")

    with pytest.raises(RuntimeError, match="ended early"):
        crest.train(batches=broken(), out="runs/broken", **BATCHES)
    zeros = np.zeros((1, 3), int)
    for batches, reason in (
        ([], "has no array"),
        ([np.zeros((1, 3))], "array 1 of batches: tokens are whole numbers, not float64"),
        ([zeros[0]], r"shape \(3,\)"),
        ([zeros, np.zeros((1, 4), int)], "array 2 of batches has rows of 4 tokens"),
        ([zeros - 1], "outside 0"),
        ([zeros, zeros + 257], "frame 2, row 1, column 1: token 257 is not in the model's vocabulary of 257"),
    ):
        with pytest.raises(crest.CrestError, match=reason):
            crest.train(batches=batches, out="runs/none", **BATCHES)
    for flags, reason in (
        ({"vocab": None}, "vocabulary of the rows is unknown"),
        ({"data_parallel": 2}, "only one rank"),
        ({"restarts": 1}, "restarted run"),
        ({"loader_threads": 2}, "one thread"),
        ({"packing": "documents"}, "documents in rows"),
        ({"tokenizer": "bpe:300"}, "cannot be trained on tokens"),
        ({"chat_template": "chatml"}, "was given without text"),
    ):
        with pytest.raises(crest.CrestError, match=reason) as caught:
            crest.train(batches=[zeros], out="runs/none", **{**BATCHES, **flags})
        assert caught.value.code == 2, flags
    with pytest.raises(crest.CrestError, match="batches and other data"):
        crest.train("input.txt", batches=[zeros])
    with pytest.raises(crest.CrestError, match="needs batches"):
        crest.train("input.txt", validation=zeros)


def test_interrupting_saves(trained, folder, monkeypatch):
    """Ctrl-C once the first row is in the log."""

    class Watch:
        def write(self, text):
            if re.match(r"step +1/", text):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    monkeypatch.setattr(sys, "stderr", Watch())
    with pytest.raises(KeyboardInterrupt):
        crest.train("input.txt", out="runs/long", **{**SETTINGS, "steps": 1000000, "show": True, "val_every": 0})
    run = crest.run("runs/long")
    assert run.status == "interrupted" and run.result["step"] >= 1
    assert len(crest.weights(run)) > 0


def test_the_program_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(crest.CrestError, match="was not found.*\n.*PATH"):
        crest.plan(model="nano")


@pytest.mark.parametrize("name", ["first", "own"])
def test_the_guide_runs_as_printed(tmp_path, name):
    page = (pathlib.Path(__file__).parents[2] / "docs/start/from-python.md").read_text()
    script, output = re.search(rf"`{name}.py`:\n\n```python\n(.*?)```.*?It prints\n\n```\n(.*?)```", page, re.S).groups()
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, output), done.stderr


SCORED = [{"context": "The number 7", "continuation": " is followed"}, {"text": "The number 8\nis \u00e9"}]


def test_scores_are_those_of_the_program(trained, folder):
    from crest import _score

    (folder / "pairs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in SCORED))
    expected = printed("score", "pairs.jsonl", "--run", "runs/first", "--device", "cpu", cwd=folder)["pairs"]
    assert list(_score.score(trained, SCORED, device="cpu")) == expected
    # One result at a time, and the process ends with its reader.
    some = _score.score(trained, SCORED * 1000, device="cpu")
    assert next(some) == expected[0]
    some.close()
    with pytest.raises(crest.CrestError, match="line 2") as failed:
        list(_score.score(trained, [SCORED[0], {"context": "a", "continuation": ""}], device="cpu"))
    assert failed.value.code == 1


def test_samples_of_many_prompts(trained):
    from crest import _score

    settings = {"temperature": 1.0, "seed": 1, "device": "cpu"}
    one = crest.command("sample", run="runs/first", prompt="The number", max_tokens=64, **settings)["samples"][0]["text"]
    stop = next(c for i, c in enumerate(one) if i and c.isascii() and c.isprintable() and c not in one[:i])
    requests = [{"prompt": "The number", "max_tokens": 64}, {"prompt": "The number", "stop": [stop]}, {"prompt": "A"}]
    first, second, _ = _score.samples(trained, requests, max_tokens=64, **settings)
    assert first["text"] == one
    assert (second["text"], second["finish"]) == (one[: one.index(stop)], "stop")


def test_settings_of_generation():
    from crest._score import device_flag, sampler, stop_texts

    assert sampler({}) == sampler({"do_sample": False, "temperature": 0.7}) == sampler({"temperature": 0.0}) == {"temperature": 0}
    assert sampler({"do_sample": True, "top_k": 5, "top_p": None}) == {"temperature": 1.0, "top_k": 5}
    assert sampler({"temperature": 0.5, "top_p": 0.9}) == {"temperature": 0.5, "top_p": 0.9}
    assert stop_texts(None) == [] and stop_texts("a") == ["a"] and stop_texts(["a", "", "b"]) == ["a", "b"]
    assert device_flag("cpu:0") == "cpu" and device_flag("cuda:1") == "cuda:1" and device_flag(None) is None


def test_model_of_lm_evaluation_harness(trained):
    harness = pytest.importorskip("lm_eval.api.instance", reason="lm-eval is not installed")
    import crest.lm_eval
    from lm_eval.api.registry import get_model

    def requests(kind, *arguments):
        return [harness.Instance(kind, {}, a, 0) for a in arguments]

    model = get_model("crest").create_from_arg_string("run=runs/first", {"device": "cpu", "batch_size": 1})
    assert isinstance(model, crest.lm_eval.CrestLM)
    expected = crest.command("score", "pairs.jsonl", run="runs/first", device="cpu")["pairs"]
    pair = (SCORED[0]["context"], SCORED[0]["continuation"])
    assert model.loglikelihood(requests("loglikelihood", pair, pair)) == [(expected[0]["logprob"], expected[0]["greedy"])] * 2
    texts = requests("loglikelihood_rolling", (SCORED[1]["text"],), ("",))
    assert model.loglikelihood_rolling(texts) == [expected[1]["logprob"], 0.0]
    written = model.generate_until(requests("generate_until", ("The number", {"max_gen_toks": 4, "do_sample": False})))
    assert len(written) == 1 and written[0]
    assert model.loglikelihood([]) == []
    with pytest.raises(crest.CrestError, match="run=RUN"):
        crest.lm_eval.CrestLM()
