#include "cli/command.h"

namespace crest {

// Each is defined in cli/NAME.cpp.
std::function<int()> setup_data(CLI::App&);
std::function<int()> setup_train(CLI::App&);
std::function<int()> setup_sample(CLI::App&);
std::function<int()> setup_chat(CLI::App&);
std::function<int()> setup_eval(CLI::App&);
std::function<int()> setup_score(CLI::App&);
std::function<int()> setup_bench(CLI::App&);
std::function<int()> setup_profile(CLI::App&);
std::function<int()> setup_program(CLI::App&);
std::function<int()> setup_plan(CLI::App&);
std::function<int()> setup_flops(CLI::App&);
std::function<int()> setup_devices(CLI::App&);
std::function<int()> setup_calibrate(CLI::App&);
std::function<int()> setup_tune(CLI::App&);
std::function<int()> setup_advise(CLI::App&);
std::function<int()> setup_comm(CLI::App&);
std::function<int()> setup_runs(CLI::App&);
std::function<int()> setup_compare(CLI::App&);
std::function<int()> setup_report(CLI::App&);
std::function<int()> setup_watch(CLI::App&);
std::function<int()> setup_lab(CLI::App&);
std::function<int()> setup_import(CLI::App&);
std::function<int()> setup_export(CLI::App&);
std::function<int()> setup_completions(CLI::App&);

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"data",
       "Prepare",
       "prepare text for training; describe a data folder",
       {"crest data prepare input.txt --out data", "crest data prepare docs/ --tokenizer bpe:8192 --out data",
        "crest data prepare chat.jsonl.gz --chat-template chatml --out data", "crest data info data"},
       setup_data},
      {"import",
       "Prepare",
       "import a checkpoint from llm.c or nanoGPT",
       {"crest import gpt2_124M.bin --out gpt2", "crest import model.safetensors --out mine"},
       setup_import},
      {"train",
       "Train and use",
       "train a model on a text file or prepared data",
       {"crest train input.txt", "crest train --data data --model gpt2 --batch 16 --steps 2000 --out runs/gpt2",
        "crest train --resume runs/gpt2",
        "crest train --init runs/gpt2 --data data/qa --packing documents --lr 1e-4 --out runs/tuned"},
       setup_train},
      {"sample",
       "Train and use",
       "generate text with a trained model",
       {"crest sample --run runs/gpt2 --prompt 'Once upon a time'"},
       setup_sample},
      {"chat",
       "Train and use",
       "talk to a model that was trained on conversations",
       {"crest chat --run runs/tuned", "crest chat --run runs/tuned --system 'Be brief.' --temperature 0"},
       setup_chat},
      {"eval",
       "Train and use",
       "judge a model: loss on data, perplexity of a text, accuracy in tasks",
       {"crest eval --run runs/gpt2 --data data", "crest eval --run runs/gpt2 --text article.txt",
        "crest eval --run runs/gpt2 --tasks hellaswag.jsonl --limit 200"},
       setup_eval},
      {"score",
       "Train and use",
       "probabilities of given continuations, for evaluations",
       {"crest score --run runs/gpt2 < pairs.jsonl"},
       setup_score},
      {"export",
       "Train and use",
       "write a model for llama.cpp, Ollama, transformers, peft, llm.c or nanoGPT",
       {"crest export runs/mine --to gguf --dtype q8_0 --out mine.gguf",
        "crest export runs/tuned --to merged --out tuned-model", "crest export runs/gpt2 --to llm.c --out gpt2-llmc",
        "crest export runs/mine --to nanogpt --other-gelu --out mine-nanogpt"},
       setup_export},
      {"plan",
       "Know before you run",
       "parameters, memory, FLOPs and time before anything runs",
       {"crest plan --model gpt2 --batch 16", "crest plan --model gpt2-xl --device h100",
        "crest plan --model llama-1B --seq 4096 --batch 4 --device h200"},
       setup_plan},
      {"flops",
       "Know before you run",
       "FLOP/s, MFU and HFU of a step that any program timed",
       {"crest flops --parameters 52e9 --step-ms 127000 --ranks 64 --global-batch 1024 --seq 2048 --recompute full",
        "crest flops --model llama-8B --step-ms 9830 --ranks 8 --global-batch 64 --seq 8192 --device h100"},
       setup_flops},
      {"program",
       "Know before you run",
       "print the Program of a training step",
       {"crest program --model nano", "crest program --model nano --after autograd",
        "crest program --model nano --passes"},
       setup_program},
      {"devices",
       "Know before you run",
       "list devices; --measure their limits",
       {"crest devices", "crest devices --measure"},
       setup_devices},
      {"calibrate",
       "Know before you run",
       "measure this device once, to predict times with crest plan",
       {"crest calibrate", "crest calibrate --precision bf16", "crest calibrate --ranks 2",
        "crest plan --model gpt2 --batch 4 --tokens 1e9"},
       setup_calibrate},
      {"tune",
       "Know before you run",
       "search for the fastest settings: batch, recompute, attention and others",
       {"crest tune --model nano", "crest tune --model gpt2 --global-batch 64 --headroom 5GB",
        "crest tune --model nano --batch 8 --vary precision=fp32,bf16",
        "crest tune --model gpt2-1558M --device h100 --ranks 8 --global-batch 256"},
       setup_tune},
      {"advise",
       "Know before you run",
       "advise changes to a model for a device, each with a source and a gain",
       {"crest advise --model gpt2 --device h100", "crest advise --model nano --precision fp32 --measure",
        "crest advise --model llama-1B --device a100 --mesh tensor=4"},
       setup_advise},
      {"bench",
       "Measure",
       "measure a forward pass, forward + backward, or a training step",
       {"crest bench --model nano", "crest bench --model nano --precision fp32,bf16 --batch 4,8",
        "crest bench --model nano --ab '--fusion off'"},
       setup_bench},
      {"profile",
       "Measure",
       "where the time and memory of a step go",
       {"crest profile --model nano", "crest profile --model nano --by class",
        "crest profile --model nano --trace step.json"},
       setup_profile},
      {"comm",
       "Measure",
       "measure collectives between processes (all-reduce, ...)",
       {"crest comm all-reduce --nproc 2"},
       setup_comm},
      {"compare",
       "Explain",
       "why two runs differ: time and memory, split into causes",
       {"crest compare 1 2", "crest compare --model nano --a '--attention naive' --b ''"},
       setup_compare},
      {"lab",
       "Explain",
       "experiments that test published claims: list, show, run, judge",
       {"crest lab list", "crest lab run memory-anatomy", "crest lab run --all --scale tiny"},
       setup_lab},
      {"runs",
       "Records",
       "recorded runs: list, show, export, import, delete",
       {"crest runs", "crest runs list --where optimizer=lion --columns id,name,lr,val_loss", "crest runs show 3"},
       setup_runs},
      {"report",
       "Records",
       "write a report on recorded runs as one HTML or Markdown file",
       {"crest report 1 2 3 -o report.html"},
       setup_report},
      {"watch",
       "Records",
       "training runs in a browser: curves, samples, comparisons, reports",
       {"crest watch", "crest watch runs/a runs/b", "crest watch --bind 0.0.0.0 --port 8080"},
       setup_watch},
      {"completions",
       "Records",
       "print shell completions for bash, zsh or fish",
       {"crest completions bash > ~/.local/share/bash-completion/completions/crest"},
       setup_completions},
  };
  return table;
}

}  // namespace crest
