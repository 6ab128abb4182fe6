"""Models of Crest in lm-evaluation-harness (pip install lm-eval).

    python3 -m crest.lm_eval --model_args run=runs/mine --tasks hellaswag

is `lm_eval --model crest`. In a program, `import crest.lm_eval` adds the model "crest" to the harness:

    lm_eval.simple_evaluate(model="crest", model_args={"run": "runs/mine"}, tasks=["hellaswag"])
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Dict, Iterable, List, Optional, Tuple

from crest._program import CrestError
from crest._score import device_flag, sampler, samples, score, stop_texts

try:
    _model = importlib.import_module("lm_eval.api.model")
    _registry = importlib.import_module("lm_eval.api.registry")
    importlib.import_module("lm_eval.models")  # the harness's own: it adds them only on import
    _tqdm = importlib.import_module("tqdm").tqdm
except ModuleNotFoundError as e:
    raise ModuleNotFoundError(f"{e.msg}: crest.lm_eval needs lm-evaluation-harness. Install it: pip install lm-eval") from None


class _Model:
    """The requests of the harness, answered by `crest score` and `crest sample`. Model arguments: `run` (a run, a
    checkpoint, or a folder with config.json and safetensors), and optionally `precision`, `weights`, `base`, `threads`.
    `add_bos=True` begins prompts of generated texts with the begin-of-text token."""

    cache_hook: Any

    def __init__(
        self,
        run: Optional[str] = None,
        *,
        precision: Optional[str] = None,
        weights: Optional[str] = None,
        base: Optional[str] = None,
        threads: Optional[int] = None,
        add_bos: bool = False,
        device: Optional[str] = None,
        batch_size: Any = None,
        max_batch_size: Any = None,
    ) -> None:
        super().__init__()
        if run is None:
            raise CrestError("no model given\n  Give --model_args run=RUN.", 2)
        self._run = str(run)
        self._add_bos = add_bos
        self._settings: Dict[str, Any] = {
            "precision": precision,
            "weights": weights,
            "base": base,
            "threads": threads,
            "device": device_flag(device),
        }

    def loglikelihood(self, requests: List[Any], disable_tqdm: bool = False) -> List[Tuple[float, bool]]:
        pairs = [request.args for request in requests]
        asked = ({"context": context, "continuation": continuation} for context, continuation in pairs)
        results = []
        for pair, line in zip(pairs, self._scores(asked, len(pairs), disable_tqdm)):
            results.append((float(line["logprob"]), bool(line["greedy"])))
            self.cache_hook.add_partial("loglikelihood", pair, results[-1])
        return results

    def loglikelihood_rolling(self, requests: List[Any], disable_tqdm: bool = False) -> List[float]:
        texts = [request.args[0] for request in requests]
        asked = [{"text": text} for text in texts if text]
        lines = iter(self._scores(asked, len(asked), disable_tqdm))
        results = []
        for text in texts:
            results.append(float(next(lines)["logprob"]) if text else 0.0)
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), results[-1])
        for _ in lines:  # the process ends
            pass
        return results

    def generate_until(self, requests: List[Any], disable_tqdm: bool = False) -> List[str]:
        asked = [
            {
                "prompt": context,
                "max_tokens": int(settings.get("max_gen_toks", 256)),
                "stop": stop_texts(settings.get("until")),
                **sampler(settings),
            }
            for context, settings in (request.args for request in requests)
        ]
        results: List[str] = []
        if not asked:
            return results
        given = samples(self._run, asked, add_bos=True if self._add_bos else None, **self._settings)
        for request, line in zip(requests, _tqdm(given, total=len(asked), desc="crest sample", disable=disable_tqdm)):
            results.append(line["text"])
            self.cache_hook.add_partial("generate_until", request.args, line["text"])
        return results

    def _scores(self, asked: Iterable[Any], count: int, disable_tqdm: bool) -> Iterable[Any]:
        if count == 0:
            return []
        lines = score(self._run, asked, **self._settings)
        progress: Iterable[Any] = _tqdm(lines, total=count, desc="crest score", disable=disable_tqdm)
        return progress


CrestLM: Any = _registry.register_model("crest")(type("CrestLM", (_Model, _model.LM), {"__doc__": _Model.__doc__}))


def main() -> None:
    """The command line of lm_eval, with --model crest unless another one is given."""
    words = sys.argv[1:]
    commands = ("ls", "validate")
    if words and words[0] not in commands and not any(w in ("--model", "-M") or w.startswith("--model=") for w in words):
        sys.argv += ["--model", "crest"]
    importlib.import_module("lm_eval.__main__").cli_evaluate()


if __name__ == "__main__":
    sys.modules["crest.lm_eval"] = sys.modules[__name__]  # a second import would register another class
    main()
