// crest plan: parameters, FLOPs and memory of a training run before anything runs.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/recipe_json.h"
#include "cli/session_json.h"
#include "core/error.h"
#include "core/text.h"
#include "ops/op.h"
#include "passes/pass.h"
#include "plan/compile.h"
#include "plan/search.h"
#include "report/table.h"

namespace crest {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* convention = "6N + 12 L d T per token (PaLM, appendix B), no causal discount";

struct Options {
  RecipeOptions recipe;
  DeviceOptions device;
  std::string memory, use = "train";
  int blocks = 8;
  bool json = false;
};

// What a plan says, gathered once for both forms of output. Bytes are of all ranks.
struct Report {
  CompiledSession session;
  int64_t ranks = 1;
  int64_t limit = 0;
  bool limit_given = false;
  int64_t batch_that_fits = 0;
  double executed_flops = 0;  // per optimizer step
  double search_seconds = 0;

  const ModelConfig& model() const { return session.recipe.model; }
  int64_t planned() const { return session.planned_bytes() * ranks; }
  bool fits() const { return planned() <= limit; }
  int64_t embeddings() const {
    const ModelConfig& m = model();
    return m.width * (m.vocab + (m.position == PositionKind::learned ? m.context : 0));
  }
  double model_flops() const {
    return model().flops_per_token(session.recipe.seq_length()) * double(session.recipe.tokens_per_step());
  }
};

SessionUse use_of(const std::string& text) {
  SessionUse use;
  use.train = use.update = true;
  if (text == "train") use.validation = use.sampling = true;
  if (text != "train" && text != "step")
    fail_usage(fmt::format("'{}' is not a value of --for", printable(text)), "--for", "Values: train, step.");
  return use;
}

double executed_flops(const CompiledSession& s) {
  double sum = 0;
  for (auto& call : training_step(s)) {
    const Program& p = s.programs[size_t(call.segment)].program;
    for (auto& instr : p.code) sum += instr.op->cost(p, instr).flops;
  }
  return sum;
}

Report make_report(const Options& o) {
  Device device = o.device.find();
  Recipe recipe = resolve(o.recipe.finish("nano"), device);
  SessionUse use = use_of(o.use);
  Report r;
  r.limit_given = !o.memory.empty() || !o.device.memory_limit.empty();
  r.limit = o.memory.empty() ? o.device.limit(device) : parse_bytes(o.memory, "--memory");
  r.ranks = recipe.data_parallel;
  CompileOptions quick;
  quick.verify = false;  // the tests verify every pass; a plan has to be there at once
  r.session = compile(recipe, device, session_programs(recipe, use), quick);
  r.executed_flops = executed_flops(r.session) * double(r.ranks);
  auto start = std::chrono::steady_clock::now();
  r.batch_that_fits = largest_batch(r.session, use, r.limit / r.ranks);
  r.search_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return r;
}

Json to_json(const Report& r, int rows) {
  const CompiledSession& s = r.session;
  return {
      {"model", model_to_json(r.model())},
      {"recipe", recipe_to_json(s.recipe)},
      {"device", device_to_json(s.device)},
      {"parameters",
       {{"total", r.model().parameters()}, {"matmul", r.model().matmul_parameters()}, {"embeddings", r.embeddings()}}},
      {"tokens_per_step", s.recipe.tokens_per_step()},
      {"flops",
       {{"model_per_step", r.model_flops()},
        {"executed_per_step", r.executed_flops},
        {"flops_convention", convention}}},
      {"memory", memory_to_json(s, rows)},
      {"fit", {{"memory_bytes", r.limit}, {"fits", r.fits()}, {"largest_batch", r.batch_that_fits}}},
      {"programs", programs_to_json(s)},
      {"seconds", s.compile_seconds + r.search_seconds}};
}

std::string shape_line(const ModelConfig& m) {
  return fmt::format("{} layers, width {}, {} heads{} of {}, MLP {}, vocabulary {}, context {}", m.layers, m.width,
                     m.heads, m.kv_heads == m.heads ? "" : fmt::format(" ({} for keys and values)", m.kv_heads),
                     m.head_dim, m.ff, m.vocab, m.context);
}

void print_memory(const Report& r, int rows) {
  const CompiledSession& s = r.session;
  CategoryBytes bytes = s.by_category();
  Table table({{"memory", Align::left}, {"bytes"}, {"share"}});
  for (int i = 0; i < category_count; ++i)
    if (int64_t b = bytes[size_t(i)] * r.ranks)
      table.row({std::string(name(Category(i))), format_bytes(double(b)),
                 fmt::format("{:.1f}%", 100.0 * double(b) / double(r.planned()))});
  table.rule();
  table.row({"planned", format_bytes(double(r.planned())), ""});
  fmt::print("\n{}", table.text(use_color(STDOUT_FILENO)));
  fmt::print("  persistent {} + transient {}{}\n", format_bytes(double(s.persistent_bytes)),
             format_bytes(double(s.transient_bytes)),
             r.ranks > 1 ? fmt::format(", for each of {} ranks", r.ranks) : "");
  const CompiledProgram& big = s.largest();
  if (big.memory.peak_instr >= 0) {
    const Instr& i = big.program.code[size_t(big.memory.peak_instr)];
    fmt::print("  peak of the transient arena at instruction {} of {}: {} at {} ({}), {} live\n", big.memory.peak_instr,
               big.spec.name, i.op->name, printable(i.origin.text()), name(i.phase),
               format_bytes(double(big.memory.live_peak)));
  }
  if (rows <= 0) return;
  Table blocks({{"largest blocks", Align::left}, {"bytes"}, {"category", Align::left}, {"instructions"}});
  for (const Block* b : largest_blocks(s, rows))
    blocks.row({b->name, format_bytes(double(b->bytes)), std::string(name(b->category)),
                fmt::format("{}..{}", b->first, b->last)});
  fmt::print("\n{}", blocks.text(use_color(STDOUT_FILENO)));
}

void print_text(const Report& r, int rows) {
  const CompiledSession& s = r.session;
  const Recipe& q = s.recipe;
  fmt::print("model       {}: {}\n", printable(r.model().name), shape_line(r.model()));
  fmt::print("parameters  {} ({} in matrix products, {} in embeddings)\n", r.model().parameters(),
             format_count(double(r.model().matmul_parameters())), format_count(double(r.embeddings())));
  const std::string& chunk = q.levers.at("loss-chunk");
  fmt::print("recipe      {} ({}), attention {}, fusion {}, recompute {}, {}, logits of {} at a time{}\n", q.precision,
             q.policy, q.attention, q.fusion, q.recompute, q.optimizer,
             chunk == "off" ? "all tokens" : fmt::format("{} tokens", chunk),
             packs_documents(q) ? ", documents packed" : "");
  fmt::print("step        {} tokens = batch {} x seq {} x {} micro step{}{}\n", q.tokens_per_step(), q.batch,
             q.seq_length(), q.grad_accumulation, q.grad_accumulation == 1 ? "" : "s",
             q.data_parallel == 1 ? "" : fmt::format(" x {} ranks", q.data_parallel));
  fmt::print("FLOPs       {} a step: {}\n", format_si(r.model_flops(), "FLOP"), convention);
  fmt::print("            {} a step executed: sum over the instructions, padding and recompute included\n",
             format_si(r.executed_flops, "FLOP"));
  print_memory(r, rows);
  fmt::print("\n");
  const char* whose = r.limit_given ? "given" : "available here";
  if (!r.fits())
    fmt::print("does not fit: {} planned, {} {}\n", format_bytes(double(r.planned())), format_bytes(double(r.limit)),
               whose);
  if (r.batch_that_fits)
    fmt::print("largest micro batch in {} ({}): {}\n", format_bytes(double(r.limit)), whose, r.batch_that_fits);
  else
    fmt::print("not even batch 1 fits in {} ({}): try --recompute full, a shorter --seq or a smaller model\n",
               format_bytes(double(r.limit)), whose);
}

int run(const Options& o) {
  if (o.blocks < 0) fail_usage(fmt::format("--blocks {}", o.blocks), "--blocks", "It must be at least 0.");
  Report r = make_report(o);
  if (o.json)
    print_json(to_json(r, o.blocks));
  else
    print_text(r, o.blocks);
  return r.limit_given && !r.fits() ? int(Exit::does_not_fit) : int(Exit::ok);
}

}  // namespace

std::function<int()> setup_plan(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--memory", o->memory, "memory to plan for, for example 24GiB (default: what is available here)");
  app.add_option("--for", o->use,
                 "train: all that crest train compiles (with validation and sampling); step: a training step alone")
      ->capture_default_str();
  app.add_option("--blocks", o->blocks, "rows of the table of the largest blocks")->capture_default_str();
  add_json_option(app, o->json);
  add_recipe_options(app, o->recipe);
  add_device_options(app, o->device);
  add_config_option(app);
  return [o] { return run(*o); };
}

}  // namespace crest
