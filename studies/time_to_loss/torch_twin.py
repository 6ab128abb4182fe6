#!/usr/bin/env python3
"""nanoGPT's recipe in PyTorch (studies/loss_curve/torch_train.py), for search.py --torch.

  studies/time_to_loss/torch_twin.py OUT [arguments of torch_train.py]

Compiles and takes a step, waits for OUT/go, trains, and makes OUT/torch_done.
"""
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "loss_curve"))
import torch  # noqa: E402
import torch_train  # noqa: E402


made = {}
make_weights = torch_train.initial_weights


def weights_once(config, seed):
    if seed not in made:
        made[seed] = make_weights(config, seed)
    return made[seed]


def compiled(args):
    twin = torch_train.Twin(args)
    twin.reset(1, False)
    for _ in range(3):
        twin.step(twin.val[0], 0.0)
    twin.validate()
    return twin


def main():
    folder = Path(sys.argv.pop(1))
    args = torch_train.parse()
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        started = time.time()
        torch_train.initial_weights = weights_once  # seconds of work on the host
        try:
            twin = compiled(args)
        except RuntimeError as error:
            print(f"attention {args.attention}: {str(error)[:300]}", flush=True)
            args.attention = "any"
            twin = compiled(args)
        print(f"compiled in {time.time() - started:.1f} s, PyTorch {torch.__version__}", flush=True)
        while not (folder / "go").exists():
            time.sleep(0.1)
        for run in args.run:
            name, weights_seed, order_seed, *_ = run.split(":")
            print(f"{name}: {twin.run(name, int(weights_seed), int(order_seed), False):.2f} s", flush=True)
    finally:
        (folder / "torch_done").touch()


if __name__ == "__main__":
    main()
