#!/usr/bin/env python3
"""Conversations: the tokens of `crest chat`, and of apply_chat_template and generate of transformers.

  chat.py CREST [--turns 5] [--time]

Needs torch, transformers, tokenizers. Models are tiny, random, in fp32 on the CPU, and greedy.
  folders   Llama and Qwen2 made by transformers, each with chat templates in the forms of published models
  runs      made by crest train, with each of Crest's own templates
A turn agrees if the ids of the prompt, the ids of the answer and its text are equal. --time: a Llama of 40M parameters
and a first question of about 1,500 tokens; milliseconds until the first token of each turn, and of crest sample for the
same prompt. Prints one JSON line for each conversation; exit code 1 if a turn differs.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
QUESTIONS = ["Hello, who are you?", "  And what is 1 + 2?  ", "Größe und 東京 \U0001F600?", "Why", "Say it again.\tPlease",
             "Good bye!", "One more question", "The last one"]
CHATML = ["<|im_start|>", "<|im_end|>"]
LLAMA3 = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
# name: jinja, special tokens, bos, the token at the end of an answer, whether it takes a system text
TEMPLATES = {
    "default system": ("""{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant.<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}""", CHATML, None, "<|im_end|>", True),
    "tools and thoughts": ("""{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}{{- '<|im_end|>\\n' }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and message.content is string and not message.content.startswith('<tool>') %}
        {%- set ns.last = index %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- if '</think>' in message.content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- if message.tool_calls %}{{- raise_exception('no tools here') }}{%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""", CHATML, None, "<|im_end|>", True),
    "date and trim": ("""{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}

{#- The system message is taken apart, so that it can stand anywhere. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""", LLAMA3, "<|begin_of_text|>", "<|eot_id|>", True),
    "roles alternate": ("""{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}""",
                        ["<s>", "</s>"], "<s>", "</s>", False),
    "other names": ("""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first_user_prefix = messages[0]['content'] + '\\n\\n' %}{% set loop_messages = messages[1:] %}{% else %}{% set first_user_prefix = '' %}{% set loop_messages = messages %}{% endif %}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
""", ["<bos>", "<start_of_turn>", "<end_of_turn>"], "<bos>", "<end_of_turn>", True),
}


def made_tokenizer(specials, bos, eos, jinja, folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train([str(REPOSITORY / "README.md"), str(REPOSITORY / "src/README.md")], trainers.BpeTrainer(
        vocab_size=900, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos,
                                   clean_up_tokenization_spaces=False)
    fast.chat_template = jinja
    fast.save_pretrained(folder)
    return fast


def made_model(kind, tokenizer, folder, more=None):
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
    sizes = dict(vocab_size=len(tokenizer), hidden_size=64, intermediate_size=160, num_hidden_layers=3,
                 num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, initializer_range=0.3,
                 tie_word_embeddings=False, bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id)
    sizes.update(more or {})
    torch.manual_seed(1)
    model = (LlamaForCausalLM(LlamaConfig(**sizes)) if kind == "llama" else Qwen2ForCausalLM(Qwen2Config(**sizes))).eval()
    # So many ends that some answers do end.
    ends = [tokenizer.eos_token_id] + list(range(300, 340))
    model.generation_config = GenerationConfig(eos_token_id=ends, bos_token_id=tokenizer.bos_token_id)
    model.save_pretrained(folder)
    return model


def chat(crest, folder, questions, flags):
    out = subprocess.run([crest, "chat", "--device", "cpu", "--precision", "fp32", "--run", folder, "--temperature", "0",
                          "--json", *flags], input="\n".join(questions) + "\n", capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"{folder} {flags}: {out.stderr}")
    return [json.loads(line) for line in out.stdout.splitlines()]


def compare(name, crest, folder, model, tokenizer, questions, system, tokens=40, before=""):
    """Whether each turn agrees."""
    import torch
    flags = ["--max-tokens", str(tokens)] + (["--system", system] if system else [])
    turns = chat(crest, folder, questions, flags)
    history = [{"role": "system", "content": system}] if system else []
    row = {"conversation": name, "system": bool(system), "turns": len(turns), "tokens": 0, "ended": 0, "kept": [],
           "different": []}
    for number, (question, turn) in enumerate(zip(questions, turns)):
        history.append({"role": "user", "content": question})
        prompt = tokenizer.apply_chat_template(history, add_generation_prompt=True)["input_ids"]
        with torch.no_grad():
            made = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                                  max_new_tokens=tokens, do_sample=False, pad_token_id=0)[0, len(prompt):].tolist()
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        ended = made[-1] in ends
        answer = made[:-1] if ended else made
        text = tokenizer.decode(answer, skip_special_tokens=True).removeprefix(before)
        wrong = [what for what, same in (("prompt", prompt == turn["prompt"]), ("answer", answer == turn["tokens"]),
                                         ("text", text == turn["content"]),
                                         ("finish", ended == (turn["finish"] == "end_of_text"))) if not same]
        if wrong:
            row["different"].append({"turn": number + 1, "what": wrong})
        row["tokens"] += len(answer)
        row["ended"] += ended
        row["kept"].append(f"{turn['kept_tokens']}/{len(turn['prompt'])}")
        history.append({"role": "assistant", "content": turn["content"]})
    print(json.dumps(row), flush=True)
    return not row["different"] and len(turns) == len(questions)


def crest_runs(crest, folder, questions):
    from transformers import AutoModelForCausalLM, AutoTokenizer
    names = re.findall(r'\{\.name = "(\w+)"', (REPOSITORY / "src/trainer/data/chat.cpp").read_text())
    lines = [json.dumps({"messages": [{"role": "user", "content": f"question {i}"},
                                      {"role": "assistant", "content": f"answer {i}"}]}) for i in range(60)]
    (folder / "chat.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "tiny.toml").write_text('preset = "llama-nano"\nname = "tiny"\nlayers = 2\nheads = 4\nkv_heads = 2\n'
                                      "width = 64\nhead_dim = 16\nff = 128\ncontext = 1024\nvocab = 400\n")
    same = True
    for name in names:
        run = folder / name
        subprocess.run([crest, "train", "chat.jsonl", "--chat-template", name, "--tokenizer", "bpe:400", "--model",
                        "tiny.toml", "--seq", "64", "--batch", "4", "--steps", "30", "--lr", "1e-2", "--threads", "1",
                        "--packing", "documents", "--out", str(run), "--quiet"], check=True, cwd=folder)
        checkpoint = max((run / "checkpoints").glob("step-*"))
        model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        for system in ("", "Be brief."):
            same &= compare(f"run, {name}", crest, str(run), model, tokenizer, questions, system,
                            before=" " if name in ("plain", "llama2") else "")
    return same


def times(crest, folder):
    tokenizer = made_tokenizer(CHATML, None, "<|im_end|>", TEMPLATES["default system"][0], folder)
    made_model("llama", tokenizer, folder, dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=12,
                                                num_attention_heads=8, num_key_value_heads=8, initializer_range=0.05))
    words = (REPOSITORY / "src/README.md").read_text().split()
    long = " ".join(words)[:4000]
    for turn in chat(crest, str(folder), [long, "And now?", "Once more?"], ["--max-tokens", "32"]):
        ids = ",".join(map(str, turn["prompt"]))
        alone = subprocess.run([crest, "sample", "--device", "cpu", "--precision", "fp32", "--run", str(folder),
                                "--prompt-tokens", ids, "--max-tokens", "1", "--json"], capture_output=True, text=True,
                               check=True)
        print(json.dumps({"prompt_tokens": len(turn["prompt"]), "kept_tokens": turn["kept_tokens"],
                          "prompt_ms": round(turn["prompt_ms"], 1),
                          "whole_prompt_ms": round(1e3 * json.loads(alone.stdout)["samples"][0]["prompt_seconds"], 1)}),
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("crest")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--time", action="store_true")
    o = parser.parse_args()
    crest = str(pathlib.Path(o.crest).resolve())
    questions = QUESTIONS[:o.turns]
    same = True
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        if o.time:
            return times(crest, place / "large")
        for kind in ("llama", "qwen2"):
            for name, (jinja, specials, bos, eos, takes_system) in TEMPLATES.items():
                folder = place / f"{kind} {name}"
                tokenizer = made_tokenizer(specials, bos, eos, jinja, folder)
                model = made_model(kind, tokenizer, folder)
                for system in ("", "Be brief. ") if takes_system else ("",):
                    same &= compare(f"{kind}, {name}", crest, str(folder), model, tokenizer, questions, system)
        same &= crest_runs(crest, place, questions)
    print("all equal" if same else "DIFFERENT")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
