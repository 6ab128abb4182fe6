#!/usr/bin/env python3
"""`crest eval --tasks` and the model "crest" of lm-evaluation-harness next to its model "hf", on a CPU in fp32.

  lm_eval_tasks.py CREST [--items 40] [--folder DIR]

Needs lm-eval[hf] (0.4.13) and Crest's Python package (PYTHONPATH=python). Makes three small models: one trained by Crest
on generated text (GPT-2's architecture), the same with LoRA, and a random Llama whose tokenizer begins every text with
<s>. Makes a file of each layout, and runs the harness's own tasks (prompts, cleaning, metrics) on these files, without a
network. Compares each log-likelihood (1e-3) and each accuracy and standard error (equal); the perplexity of texts, and
greedy texts. Prints a line for each comparison; exits with 1 if one differs.
"""
import argparse
import importlib
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

WORDS = ("the man woman dog river ice snow car knife bread cup box table runs cuts holds drives melts because while slowly "
         "quickly over under with on small large red cold he she they it does not fit was is too big open water").split()
LIMIT = 1e-3
failed = []


def check(name, fine, text):
    print(f"{'ok  ' if fine else 'FAIL'} {name}: {text}", flush=True)
    if not fine:
        failed.append(name)


def sentence(rng, least=3, most=14):
    words = [rng.choice(WORDS) for _ in range(rng.randint(least, most))]
    if rng.random() < 0.2:
        words[rng.randrange(len(words))] = rng.choice(["caf\u00e9", "na\u00efve", "\u4f60\u597d", "10%", "\U0001f600"])
    return " ".join(words)


def write_text(file, rng):
    file.write_text("".join(sentence(rng).capitalize() + ".\n" for _ in range(6000)))


def write_tasks(folder, items, rng):
    """A file of each layout, with what the cleaning is for: brackets, double spaces, white space at the ends."""
    def wiki(text):
        extra = rng.choice(["", " [title] ", " [step] ", "  ", " [substeps]", "[header] "])
        at = rng.randrange(len(text) + 1)
        return text[:at] + extra + text[at:]

    rows = {name: [] for name in ("hellaswag", "arc", "piqa", "winogrande")}
    for i in range(items):
        long = 80 if i == 3 else 14  # one that does not fit into the model's context
        rows["hellaswag"].append({"ind": i, "activity_label": sentence(rng, 1, 3), "ctx_a": wiki(sentence(rng, 3, long)),
                                  "ctx_b": rng.choice(["", sentence(rng, 1, 3), "THEN He"]), "ctx": "",
                                  "endings": [wiki(" " + sentence(rng) + ". ") for _ in range(4)],
                                  "label": str(rng.randrange(4))})
        labels = rng.choice([["A", "B", "C", "D"], ["1", "2", "3"], ["A", "B", "C", "D", "E"]])
        rows["arc"].append({"id": f"Q{i}", "question": sentence(rng, 3, long) + "?",
                            "choices": {"text": [sentence(rng, 1, 5) for _ in labels], "label": labels},
                            "answerKey": rng.choice(labels)})
        rows["piqa"].append({"goal": sentence(rng, 3, long), "sol1": sentence(rng), "sol2": sentence(rng) + " ",
                             "label": rng.randrange(2)})
        rows["winogrande"].append({"sentence": f"{sentence(rng)} because the _ {sentence(rng)} . ", "option1": "knife",
                                   "option2": "red table", "answer": rng.choice("12")})
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def write_yaml(folder, texts):
    """The harness's tasks on these files."""
    import lm_eval.tasks
    tasks = pathlib.Path(lm_eval.tasks.__file__).parent
    for name, file in (("hellaswag", "hellaswag/hellaswag.yaml"), ("arc", "arc/arc_easy.yaml"), ("piqa", "piqa/piqa.yaml"),
                       ("winogrande", "winogrande/default.yaml")):
        (folder / f"{name}.yaml").write_text(
            f"include: {tasks / file}\ntask: local_{name}\ntag: null\ndataset_path: json\ndataset_name: null\n"
            f"dataset_kwargs: {{data_files: {{validation: {folder / (name + '.jsonl')}}}}}\n"
            "training_split: null\ntest_split: null\n")
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    common = f"dataset_path: json\ndataset_kwargs: {{data_files: {{validation: {folder / 'texts.jsonl'}}}}}\n"
    (folder / "rolling.yaml").write_text(
        f"task: local_rolling\n{common}output_type: loglikelihood_rolling\nvalidation_split: validation\n"
        "doc_to_text: \"\"\ndoc_to_target: \"{{text}}\"\nmetric_list: [{metric: bits_per_byte}, {metric: word_perplexity}]\n")
    (folder / "writing.yaml").write_text(
        f"task: local_writing\n{common}output_type: generate_until\nvalidation_split: validation\n"
        "doc_to_text: \"{{text[:40]}}\"\ndoc_to_target: \"x\"\n"
        "generation_kwargs: {until: [\" the\"], max_gen_toks: 24, do_sample: false}\nmetric_list: [{metric: exact_match}]\n")


def make_llama(folder, text):
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train([str(text)], trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>"],
                                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=t.get_vocab_size(), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=96, initializer_range=0.2,
                         bos_token_id=0, eos_token_id=1, tie_word_embeddings=False)
    LlamaForCausalLM(config).save_pretrained(folder)


def harness(model, arguments, tasks, folder):
    import lm_eval
    from lm_eval.tasks import TaskManager
    return lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=tasks, device="cpu", log_samples=True,
                                   task_manager=TaskManager(include_path=str(folder), include_defaults=False),
                                   bootstrap_iters=0 if tasks == ["local_writing"] else 100000)


def lls(result, task):
    """The log-likelihoods of each document, in order."""
    samples = sorted(result["samples"][task], key=lambda s: s["doc_id"])
    return [[float(r[0][0]) if isinstance(r[0], (list, tuple)) else float(r[0]) for r in s["resps"]] for s in samples]


def worst(a, b):
    return max(abs(x - y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other, strict=True))


def compare(crest, name, run, hf_arguments, folder, text):
    tasks = ["hellaswag", "arc", "piqa", "winogrande"]
    expected = harness("hf", {**hf_arguments, "dtype": "float32"}, [f"local_{t}" for t in tasks], folder)
    common = ["--run", str(run), "--precision", "fp32", "--device", "cpu", "--json"]
    files = ",".join(str(folder / f"{t}.jsonl") for t in tasks)
    own = json.loads(subprocess.run([crest, "eval", "--tasks", files, *common], check=True, capture_output=True).stdout)
    model = harness("crest", {"run": str(run), "precision": "fp32"}, [f"local_{t}" for t in tasks], folder)
    for task in own["tasks"]:
        of_task, key = expected["results"][f"local_{task['task']}"], f"local_{task['task']}"
        difference = worst(lls(expected, key), [s["logprobs"] for s in task["samples"]])
        count = sum(len(s["logprobs"]) for s in task["samples"])
        check(f"{name} {task['task']} log-likelihoods", difference < LIMIT,
              f"{count} differ by at most {difference:.2e}; {task['cut']} cut")
        difference = worst(lls(expected, key), lls(model, key))
        check(f"{name} {task['task']} --model crest", difference < LIMIT, f"at most {difference:.2e}")
        for metric in ("acc", "acc_norm"):
            for suffix in ("", "_stderr"):
                theirs = of_task.get(f"{metric}{suffix},none")
                for ours, whose in ((task[metric + suffix], "eval"),
                                    (model["results"][key].get(f"{metric}{suffix},none"), "--model crest")):
                    same = ours == theirs if theirs is None or ours is None else math.isclose(ours, theirs, rel_tol=1e-12)
                    check(f"{name} {task['task']} {metric}{suffix} of {whose}", same, f"{ours}, harness {theirs}")
    hf, ours = (harness(m, a, ["local_rolling"], folder) for m, a in
                (("hf", {**hf_arguments, "dtype": "float32"}), ("crest", {"run": str(run), "precision": "fp32"})))
    a, b = lls(hf, "local_rolling"), lls(ours, "local_rolling")
    # The harness predicts the <s> that the tokenizer adds, behind another <s>. Crest does not.
    difference = worst(a, b)
    relative = max(abs(x[0] / y[0] - 1) for x, y in zip(a, b))
    check(f"{name} rolling", difference < LIMIT or name == "llama", f"at most {difference:.2e}, relative {relative:.2e}")
    one = folder / "one.txt"
    one.write_text(text)
    doc = json.loads(subprocess.run([crest, "eval", "--text", str(one), *common], check=True, capture_output=True).stdout)
    bits = -b[0][0] / math.log(2) / len(text.encode())
    check(f"{name} bits per byte of eval --text", math.isclose(doc["bits_per_byte"], bits, rel_tol=1e-9),
          f"{doc['bits_per_byte']:.6f}, harness {-a[0][0] / math.log(2) / len(text.encode()):.6f}")
    hf, ours = (harness(m, a, ["local_writing"], folder) for m, a in
                (("hf", {**hf_arguments, "dtype": "float32"}),
                 ("crest", {"run": str(run), "precision": "fp32", "add_bos": name == "llama"})))
    texts = [[s["resps"][0][0] for s in sorted(r["samples"]["local_writing"], key=lambda s: s["doc_id"])] for r in (hf, ours)]
    equal = sum(x == y for x, y in zip(*texts, strict=True))
    check(f"{name} greedy texts", equal == len(texts[0]), f"{equal} of {len(texts[0])} equal")
    for x, y in zip(*texts):
        if x != y:
            print(f"     harness {x!r}\n     crest   {y!r}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("crest"), ap.add_argument("--items", type=int, default=40), ap.add_argument("--folder", default="")
    a = ap.parse_args()
    os.environ.update({"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
    crest = str(pathlib.Path(a.crest).resolve())
    os.environ["PATH"] = f"{pathlib.Path(crest).parent}:{os.environ['PATH']}"
    folder = pathlib.Path(a.folder or tempfile.mkdtemp()).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["HF_HOME"] = str(folder / "hf")
    importlib.import_module("crest.lm_eval")  # the model "crest"
    rng = random.Random(1)
    text = folder / "text.txt"
    write_text(text, rng)
    write_tasks(folder, a.items, rng)
    texts = [" ".join(sentence(rng) for _ in range(n)) for n in (60, 1, 5, 30)]
    write_yaml(folder, texts)

    def train(*arguments):
        subprocess.run([crest, "train", *arguments, "--device", "cpu", "--no-store", "--quiet"], check=True, cwd=folder)

    if not (folder / "trained").is_dir():
        train("text.txt", "--model", "nano", "--tokenizer", "bpe:400", "--seq", "96", "--steps", "60", "--batch", "8",
              "--out", "trained")
        train("--init", "trained", "--data", "trained-data" if (folder / "trained-data").is_dir() else "data/text",
              "--lora", "4", "--steps", "20", "--batch", "4", "--lr", "1e-3", "--seq", "96", "--out", "tuned")
        subprocess.run([crest, "export", "tuned", "--to", "merged", "--out", "merged"], check=True, cwd=folder)
        make_llama(folder / "llama", text)
    checkpoint = max((folder / "trained/checkpoints").glob("step-*"))
    compare(crest, "gpt2", folder / "trained", {"pretrained": str(checkpoint)}, folder, texts[0])
    compare(crest, "lora", folder / "tuned", {"pretrained": str(folder / "merged")}, folder, texts[0])
    compare(crest, "llama", folder / "llama", {"pretrained": str(folder / "llama")}, folder, texts[0])
    print(f"{len(failed)} of the comparisons differ: {', '.join(failed)}" if failed else "everything agrees")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
