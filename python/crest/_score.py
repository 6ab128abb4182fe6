"""Log-likelihoods and texts of a trained model, for evaluations by Python programs."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from crest._program import Json, flags, lines
from crest._store import PathText, Run

Model = Union[Run, PathText]


def run_path(model: Model) -> str:
    return model.folder if isinstance(model, Run) else os.fspath(model)


def score(model: Model, requests: Iterable[Mapping[str, Any]], *, show: bool = False, **settings: Any) -> Iterator[Json]:
    """The results of `crest score`, one by one, by one process: `score(R, [{"context": "2 + 2 =", "continuation": " 4"}])`."""
    given = (json.dumps(dict(request)).encode() + b"\n" for request in requests)
    arguments = ["score", *flags({"run": run_path(model), **settings})]
    for line in lines(arguments, given, show=show):
        yield json.loads(line)


def samples(model: Model, requests: Iterable[Mapping[str, Any]], *, show: bool = False, **settings: Any) -> Iterator[Json]:
    """The lines of `crest sample --prompts`, one by one, by one process: `samples(R, [{"prompt": "2 + 2 ="}])`. Keys
    max_tokens, temperature, top_k, top_p, seed and stop belong to one prompt."""
    given = (json.dumps(dict(request)).encode() + b"\n" for request in requests)
    arguments = ["sample", *flags({"run": run_path(model), "prompts": "-", **settings})]
    for line in lines(arguments, given, show=show):
        yield json.loads(line)


def sampler(settings: Mapping[str, Any]) -> Dict[str, Any]:
    """Keys of `crest sample --prompts` for generation settings of transformers."""
    temperature: Optional[float] = settings.get("temperature")
    if not settings.get("do_sample", bool(temperature)) or temperature == 0:
        return {"temperature": 0}
    known = {"temperature": 1.0 if temperature is None else temperature}
    known.update({key: settings[key] for key in ("top_k", "top_p") if settings.get(key) is not None})
    return known


def stop_texts(until: Union[None, str, Sequence[str]]) -> List[str]:
    texts = [until] if isinstance(until, str) else list(until or [])
    return [t for t in texts if t]


def device_flag(device: Optional[str]) -> Optional[str]:
    """PyTorch's names of devices are Crest's, except for the CPU with a number."""
    return None if device is None else re.sub(r"^cpu:\d+$", "cpu", str(device))
