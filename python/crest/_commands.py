"""Commands of the program as functions. Keyword arguments are its flags: batch=4 is --batch 4."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from crest._batches import Batches
from crest._program import NO_MEMORY, CrestError, Json, call, flags
from crest._store import PathText, Run, run

Texts = Iterable[Union[str, Mapping[str, Any]]]


def command(name: str, /, *arguments: PathText, show: bool = False, **settings: Any) -> Any:
    """The JSON document of any command: `command("advise", model="nano")`, `command("data", "info", "data/mine")`."""
    return call([name, *_words(arguments), *flags(settings)], show=show)


def plan(*, device: Union[None, str, Sequence[str]] = None, **settings: Any) -> Json:
    """Memory, FLOPs and time of a training, before anything runs: `plan(model="gpt2-124M", batch=4, device="h100")`.
    Several devices give one table. A plan that does not fit `memory` is a plan, too: see ["fit"]["fits"]."""
    devices = device if device is None or isinstance(device, str) else ",".join(device)
    document: Json = call(["plan", *flags({"device": devices, **settings})], accept=[NO_MEMORY])
    return document


def tune(*, show: bool = False, **settings: Any) -> Json:
    """The fastest settings of a training step: `tune(model="gpt2-124M", device="h100", vary=["recompute", "attention"])`."""
    document: Json = call(["tune", *flags(settings)], show=show)
    return document


def prepare(texts: Union[PathText, Sequence[PathText], Texts], out: PathText, *, show: bool = False, **settings: Any) -> Json:
    """Makes the training data `out`. `texts` is a file or folder, a list of pathlib.Path, or an iterable of documents: a
    str is a text, a dict a record or conversation (docs/reference/training-data.md)."""
    document: Json
    if isinstance(texts, (str, os.PathLike)):
        texts = [Path(texts)]
    if isinstance(texts, (list, tuple)) and texts and all(isinstance(t, os.PathLike) for t in texts):
        document = call(["data", "prepare", *_words(texts), *flags({"out": out, **settings})], show=show)
    else:
        words = ["data", "prepare", "-", *flags({"format": "jsonl", "out": out, **settings})]
        document = call(words, given=_lines(texts), show=show)
    return document


def train(
    text: Union[None, PathText, Sequence[PathText]] = None,
    *,
    batches: Optional[Iterable[Any]] = None,
    validation: Optional[Any] = None,
    show: bool = True,
    store: Optional[PathText] = None,
    **settings: Any,
) -> Run:
    """Trains and returns the recorded run: `train("input.txt", steps=200)`, `train(data="data/mine", model="nano")`,
    `train(resume="runs/mine")`. Progress goes to sys.stderr unless show=False. Ctrl-C saves a checkpoint first.
    `batches` yields arrays of tokens of shape (batch, sequence + 1); `validation` is such an array, held out."""
    if settings.get("no_store"):
        raise CrestError("train() returns the recorded run, so no_store is not possible\n  Give store=FILE instead.", 2)
    texts: List[PathText] = [] if text is None else [text] if isinstance(text, (str, os.PathLike)) else list(text)
    given = None
    if batches is not None:
        if texts or settings.get("data") is not None:
            raise CrestError("train() was given batches and other data\n  Give only one of them.", 2)
        arrays = Batches(batches, validation)
        if settings.get("resume") is None and settings.get("config") is None:
            settings = {"batch": arrays.shape[0], "seq": arrays.shape[1] - 1, **settings}
        settings["data"] = "-"
        given = arrays.frames()
    elif validation is not None:
        raise CrestError("validation= needs batches=\n  Other data has its own validation split.", 2)
    document = call(["train", *_words(texts), *flags({"store": store, **settings})], given=given, at_once=True, show=show)
    return run(document["run"], store=store)


def _words(paths: Iterable[PathText]) -> List[str]:
    return [os.fspath(p) for p in paths]


def _lines(documents: Iterable[Any]) -> Iterator[bytes]:
    for document in documents:
        if not isinstance(document, (str, Mapping)):
            raise CrestError(f"a document is a str or a dict, not {type(document).__name__}", 2)
        record = {"text": document} if isinstance(document, str) else dict(document)
        yield json.dumps(record, ensure_ascii=False).encode() + b"\n"
