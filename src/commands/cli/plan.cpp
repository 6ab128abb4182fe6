// crest plan: parameters, FLOPs, memory and time of a training run before anything runs.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "backend/device_json.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/plan_explain.h"
#include "cli/plan_flags.h"
#include "core/error.h"
#include "core/io.h"
#include "core/output_file.h"
#include "core/text.h"
#include "device/data_sheet.h"
#include "device/find.h"
#include "model/parameters.h"
#include "passes/optimizers.h"
#include "passes/pass.h"
#include "plan/explain.h"
#include "plan/plan_json.h"
#include "plan/plan_report.h"
#include "plan/recipe_settings.h"
#include "plan/session_properties.h"
#include "plan/training_use.h"
#include "plan/what_fits.h"
#include "predict/defaults.h"
#include "predict/links.h"
#include "predict/step_time.h"
#include "program/op.h"
#include "terminal/fit_table.h"
#include "terminal/print_json.h"
#include "terminal/table.h"

namespace crest {

namespace {

SessionUse use_of(const std::string& text) {
  static const std::vector<std::string> values = {"train", "step", "forward-saved", "eval", "sample"};
  if (std::find(values.begin(), values.end(), text) == values.end())
    fail_usage(fmt::format("'{}' is not a value of --for", printable(text)), "--for",
               fmt::format("{} Values: {}.", did_you_mean(text, values), join(values, ", ")));
  if (text == "train") return training_use;
  SessionUse use;
  use.train = use.update = text == "step";
  use.forward_saved = text == "forward-saved";
  use.validation = text == "eval";
  use.sampling = text == "sample";
  return use;
}

int64_t limit_of(const PlanFlags& o, const Device& device) {
  return o.memory.empty() ? o.device.limit(device) : parse_bytes(o.memory, "--memory");
}

Recipe planned_recipe(const RecipeOptions& recipe, const PlanFlags& o, const Device& device, int64_t limit) {
  const Recipe given = recipe.finish("nano");
  return resolve(with_defaults(given, rank_device(given, device), limit_of_rank(given, device, limit), o.device.device),
                 device);
}

// --explain: formulas and the Program's figures, instead of the plan.
int explain_plan(const PlanFlags& o) {
  if (o.use != "train") fail_usage("--explain is about everything that crest train compiles", "--for", "Omit --for.");
  if (!o.as_profile.empty() || !o.calibration.empty() || o.price > 0 || !o.link.empty() || o.node_gpus)
    fail_usage("--explain predicts no time", "--as-profile, --calibration, --price, --link, --node-gpus",
               "Omit them, or omit --explain.");
  int64_t beams = o.beams.value_or(ExplainOptions().beams);
  if (beams < 1 || beams > 100'000)
    fail_usage(fmt::format("'{}' is out of range", beams), "--beams", "It must be from 1 to 100000.");
  if (o.beams && o.explain != "memory")
    fail_usage("only --explain memory has beams", "--beams", "Omit it, or use --explain memory.");
  RecipeOptions given = o.recipe;
  ExplainOptions options{take_explained_mesh(given.given), beams, o.tokens, 0};
  if (std::find(explain_topics.begin(), explain_topics.end(), o.explain) == explain_topics.end())
    fail_usage(fmt::format("'{}' is not a value of --explain", printable(o.explain)), "--explain",
               fmt::format("{} Values: {}.", did_you_mean(o.explain, explain_topics), join(explain_topics, ", ")));
  Device device = o.device.find();
  options.limit = limit_of(o, device);
  Recipe recipe = planned_recipe(given, o, device, options.limit);
  CompiledSession session =
      compile(recipe, rank_device(recipe, device), session_programs(recipe, training_use), {.verify = false});
  Explanation e = explain(o.explain, session, options);
  if (o.json) {
    nlohmann::ordered_json json = to_json(e);
    print_json({{"model", model_to_json(recipe.model)},
                {"recipe", recipe_to_json(recipe)},
                {"device", device_to_json(device)},
                {"mesh", explained_mesh_json(options.mesh)},
                {"topic", json["topic"]},
                {"sections", json["sections"]}});
  } else {
    fmt::print("{}", text_of(e, use_color(STDOUT_FILENO), output_width()));
  }
  return int(Exit::ok);
}

}  // namespace

PlanReport make_report(const PlanFlags& o) {
  Device device = o.device.find();
  const int64_t limit = limit_of(o, device);
  const SessionUse use = use_of(o.use);
  Recipe recipe = planned_recipe(o.recipe, o, device, limit);
  if (recipe.all_ranks() > 1 && (o.use == "eval" || o.use == "sample"))
    fail_usage(fmt::format("crest {} runs on one rank", o.use), "--ranks, --data-parallel", "Omit them.");
  return plan_report(recipe, device, use, limit);
}

Prediction predict(const PlanFlags& o, const PlanReport& r) {
  const Device& device = r.session.device;
  std::optional<DataSheet> sheet = sheet_of(device, o.device.device);
  bool other_link = false;
  if (sheet && !o.link.empty()) other_link = set_links(*sheet, o.link).in_node;
  if (sheet && o.node_gpus) sheet->node_gpus = int(*o.node_gpus);
  if (!sheet && (!o.link.empty() || o.node_gpus))
    fail_usage("links are known of GPUs with a data sheet", "--link, --node-gpus", "Omit them, or give --device h100.");
  Prediction p;
  // A rank has a share of a CPU's threads, and the calibration is of as many.
  p.calibration = find_calibration(o.calibration, with_threads(device, device.threads));
  if (p.calibration && other_link) p.calibration->collectives = {};
  static_cast<StepTime&>(p) =
      step_time(r.session, p.calibration ? &*p.calibration : nullptr, sheet ? &*sheet : nullptr);
  const char* given = !o.calibration.empty()  ? "--calibration"
                      : !o.as_profile.empty() ? "--as-profile"
                      : o.price > 0           ? "--price"
                      : o.tokens > 0          ? "--tokens"
                                              : nullptr;
  if (r.ranks > 1 && !p.step() && given) fail_usage(p.why_not, given, "Omit it, or plan one rank.");
  if (sheet) p.power = sheet->power * double(r.ranks);
  return p;
}

namespace {

std::string shape_line(const ModelConfig& m) {
  const int64_t full = first_full_layers(m);
  int64_t windows = 0;
  for (int64_t i = 0; i < m.layers; ++i) windows += m.layer(i).window > 0;
  std::string window = windows ? fmt::format(", window {}", m.widest_window()) : "";
  if (full)
    window += fmt::format(" (not in the first {})", format_number_of(full, "layer"));
  else if (windows && windows < m.layers)
    window += fmt::format(" (in {} of {} layers)", windows, m.layers);
  return fmt::format("{}, width {}, {}{} of {}, MLP {}, vocabulary {}, context {}{}",
                     format_number_of(m.layers, "layer"), m.width, format_number_of(m.heads, "head"),
                     m.kv_heads == m.heads ? "" : fmt::format(" ({} for keys and values)", m.kv_heads), m.head_dim,
                     m.ff, m.vocab, m.context, window);
}

void print_stages(const PlanReport& r, const PredictedStep* time) {
  if (r.stages.empty()) return;
  const PredictedPipeline* predicted = time && time->pipeline ? &*time->pipeline : nullptr;
  const Bubble& b = predicted ? predicted->bubble : r.bubble;
  auto percent = [&](double x) { return 100 * x / b.ideal; };
  fmt::print("pipeline    {:.1f}% bubble {}: warm-up {:.1f}%, drain {:.1f}%, imbalance {:.1f}%{}\n", 100 * b.fraction(),
             predicted ? "predicted" : "by FLOPs", percent(b.warm_up), percent(b.drain), percent(b.imbalance),
             predicted
                 ? fmt::format(", transfers {:.1f}% of {:.3f} ms each", percent(b.transfers), predicted->transfer_ms)
                 : "; transfers come on top");
  for (size_t s = 0; s < r.stages.size(); ++s)
    fmt::print("{:<12}stage {}: {} layers, {}, {} at a time{}{}{}\n", "", s, r.stages[s].layers,
               format_bytes(double(r.stages[s].planned_bytes)), format_number_of(r.stages[s].micro_steps, "micro step"),
               predicted ? ", passes " + format_duration(predicted->stages[s].passes_ms / 1e3) : "",
               int(s) == r.session.stage ? ", the fullest, planned below" : "",
               r.stages[s].fits ? "" : ", does not fit");
}

void print_memory(const PlanReport& r, int rows) {
  const CompiledSession& s = r.session;
  CategoryBytes bytes = s.by_category();
  const AdapterPlan adapters = adapter_plan(s);
  Table table({{"memory at the peak", Align::left}, {"bytes"}, {"share"}});
  auto row = [&](const std::string& what, int64_t b) {
    table.row({what, format_bytes(double(b)), fmt::format("{:.1f}%", 100.0 * double(b) / double(r.planned()))});
  };
  for (int i = 0; i < category_count; ++i)
    if (int64_t b = bytes[size_t(i)]) {
      row(std::string(name(Category(i))) + (Category(i) == Category::library_context ? " (estimate)" : ""), b);
      if (Category(i) != Category::weights || !adapters.trained) continue;
      row("  frozen", adapters.frozen_bytes), row("  adapters", adapters.adapter_bytes);
    }
  table.rule();
  table.row({"planned", format_bytes(double(r.planned())), ""});
  fmt::print("\n{}", table.text(use_color(STDOUT_FILENO)));
  fmt::print(
      "  persistent {} + transient {}{}{}\n", format_bytes(double(s.persistent_bytes)),
      format_bytes(double(s.transient_bytes)),
      s.library_bytes ? fmt::format(" + library_context {} (estimate)", format_bytes(double(s.library_bytes))) : "",
      r.ranks > 1 ? fmt::format(", for each of {} ranks", r.ranks) : "");
  for (const CommunicatorMemory& c : s.communicators)
    fmt::print("  NCCL {}: {} by estimate{}\n", c.axes == Axes::all() ? "between all ranks" : "along " + c.axes.text(),
               format_bytes(double(c.bytes)),
               c.peers ? fmt::format(", with sends to or from {}", format_number_of(c.peers, "rank")) : "");
  for (auto& [bytes, what] :
       {std::pair{s.host_bytes - s.host_activations, "optimizer state"}, {s.host_activations, "activations"}})
    if (bytes)
      fmt::print("  {} of {} in host memory{}{}\n", format_bytes(double(bytes)), what,
                 r.ranks > 1 ? " for each rank" : "", s.device.kind == "cpu" ? " (a CPU has one memory for both)" : "");
  if (s.find("train.forward") >= 0)
    fmt::print("  {} of activations are kept for the backward pass{}\n", format_bytes(double(s.kept_bytes())),
               r.ranks > 1 ? " by each rank" : "");
  const CompiledProgram& big = s.largest();
  if (big.memory.peak_instr >= 0) {
    const Instr& i = big.program.code[size_t(big.memory.peak_instr)];
    fmt::print("  peak of the transient arena at instruction {} of {}: {} at {} ({}), {} live\n", big.memory.peak_instr,
               big.spec.name, i.op->name, printable(i.origin.text()), name(i.phase),
               format_bytes(double(big.memory.live_peak)));
  }
  if (rows <= 0) return;
  Table blocks({{"largest blocks", Align::left}, {"bytes"}, {"category", Align::left}, {"instructions"}});
  for (auto& [b, count] : largest_blocks(s, rows))
    blocks.row({count > 1 ? fmt::format("{} x {}", b.name, count) : b.name, format_bytes(double(b.bytes)),
                std::string(name(b.category)), fmt::format("{}..{}", b.first, b.last)});
  fmt::print("\n{}", blocks.text(use_color(STDOUT_FILENO)));
}

// "in 24.00 GiB (given)", "in 21.44 GiB (free on this machine)", or, planning for another device,
// "on the NVIDIA H200 SXM 141GB (139.65 GiB)".
std::string memory_text(const Device& device, int64_t limit, bool given) {
  std::string bytes = format_bytes(double(limit));
  if (given || !device.described) return fmt::format("in {} ({})", bytes, given ? "given" : "free on this machine");
  return fmt::format("on the {} ({})", printable(device.name.substr(0, device.name.rfind(" (described"))), bytes);
}

// Joules at the power limit of the device, and the price of an hour, over the predicted tokens.
double joules_per_token(const Prediction& p) { return p.power / p.step()->tokens_per_second(); }
double price_per_token(const Prediction& p, const PlanFlags& o) {
  return o.price * p.step()->ranks / 3600 / p.step()->tokens_per_second();
}

std::string cost_text(const Prediction& p, const PlanFlags& o) {
  if (!p.step()) return "";
  std::vector<std::string> parts;
  if (p.power > 0)
    parts.push_back(fmt::format("{:.3g} J a token at the {:g} W of the data sheet{}", joules_per_token(p),
                                p.power / p.step()->ranks, p.step()->ranks > 1 ? " of each GPU" : ""));
  auto price = [](double x) { return fmt::format(fmt::runtime(x < 1e4 ? "{:.4g}" : "{:.0f}"), x); };
  if (o.price > 0) {
    parts.push_back(fmt::format("{} for a million tokens at {:g} an hour{}", price(1e6 * price_per_token(p, o)),
                                o.price, p.step()->ranks > 1 ? " for each GPU" : ""));
    if (o.tokens > 0)
      parts.push_back(fmt::format("{} for {}", price(o.tokens * price_per_token(p, o)), count_of(o.tokens, "token")));
  }
  return join(parts, ", ");
}

nlohmann::ordered_json time_json(const Prediction& p, const PlanFlags& o) {
  if (!p.step()) return nullptr;
  nlohmann::ordered_json json = p.time ? to_json(*p.time, *p.calibration) : to_json(*p.floors);
  auto known = [](bool is, double value) { return is ? nlohmann::ordered_json(value) : nlohmann::ordered_json(); };
  json["joules_per_token_at_limit"] = known(p.power > 0, joules_per_token(p));
  json["price_per_token"] = known(o.price > 0, price_per_token(p, o));
  return json;
}

void print_what_fits(const CompiledSession& session, int64_t limit, const std::string& where) {
  std::vector<std::string> fits = what_fits(session, limit);
  if (fits.empty())
    fmt::print("not even batch 1 fits {}: use a smaller model, or a device with more memory\n", where);
  else
    fmt::print("not even batch 1 fits {}; what would fit:\n  {}\n", where, join(fits, "\n  "));
}

void print_plan(const PlanReport& r, const Prediction& prediction, const PlanFlags& o) {
  bool limit_given = o.limit_given();
  int rows = o.blocks;
  const CompiledSession& s = r.session;
  const Recipe& q = s.recipe;
  fmt::print("model       {}: {}\n", printable(r.model().name), shape_line(r.model()));
  fmt::print("parameters  {} ({} in matmuls, {} in embeddings{})\n", parameter_count(r.model()),
             format_count(double(matmul_parameter_count(r.model()))),
             format_count(double(embedding_parameter_count(r.model()))),
             r.model().tied ? "; head and token embedding are tied" : "");
  if (const AdapterPlan a = adapter_plan(s); a.trained)
    fmt::print("adapters    rank {}{} at {}: {} parameters are trained ({:.2g}%), {} are frozen\n", q.model.lora.rank,
               q.model.lora.qkv_rank ? fmt::format(" ({} at attn.qkv)", q.model.lora.qkv_rank) : "",
               printable(q.model.lora.targets), a.trained, 100 * double(a.trained) / double(a.trained + a.frozen),
               a.frozen);
  int64_t chunk = loss_chunk(s);
  std::string weights;
  if (int64_t n = int8_weights(s))
    weights = fmt::format(", {} of 8 bits", n == 1 ? "one matrix" : fmt::format("{} matrices", n));
  fmt::print("recipe      {} ({}){}, attention {}, fusion {}, recompute {}, {}, {}{}\n", q.precision, q.policy, weights,
             q.attention, q.fusion, q.recompute, q.optimizer,
             chunk == 0 ? "loss not chunked" : fmt::format("loss chunked ({} tokens)", chunk),
             packs_documents(q) ? ", documents packed" : "");
  if (std::string rates = learning_rates_text(q); !rates.empty() && !r.forward_only())
    fmt::print("rates       {}, on the schedule of --lr\n", rates);
  std::string step = format_number_of(r.tokens(), "token");
  if (r.decodes())
    step += fmt::format(", with a cache for {}",
                        s.programs[size_t(forward_calls(s, "decode").back().segment)].spec.cache_length);
  else
    step += fmt::format(" = batch {} x seq {}", q.batch, q.seq_length());
  int64_t micro_steps = r.forward_only() ? 1 : q.grad_accumulation;
  const char* copies = q.data_ranks() == q.all_ranks() ? "rank" : "data rank";
  for (auto& [n, noun] : {std::pair{micro_steps, "micro step"}, {int64_t(q.data_ranks()), copies}})
    if (n > 1) step += " x " + format_number_of(n, noun);
  if (!r.decodes() && q.padded_seq() != q.seq_length())
    step += fmt::format(", each sequence padded to {}", q.padded_seq());
  const char* per = r.forward_only() ? "forward pass" : "step";
  fmt::print("{:<12}{}\n", r.forward_only() ? "pass" : "step", step);
  fmt::print("FLOPs       {} per {}: {}\n", format_si(r.model_flops(), "FLOP"), per, r.flops_convention());
  fmt::print("            {} per {} executed: all instructions, padding and recompute included\n",
             format_si(r.executed_flops, "FLOP"), per);
  if (prediction.time)
    fmt::print("{}", text_of(*prediction.time, *prediction.calibration, o.tokens));
  else if (prediction.floors)
    fmt::print("{}", text_of(*prediction.floors, o.tokens));
  else
    fmt::print("time        not predicted: {}\n", prediction.why_not);
  if (std::string cost = cost_text(prediction, o); !cost.empty()) fmt::print("cost        {}\n", cost);
  print_stages(r, prediction.step());
  print_memory(r, rows);
  fmt::print("\n");
  std::string where = memory_text(s.device, r.limit, limit_given);
  if (!r.fits())
    fmt::print("does not fit {}: {} planned{}\n", where, format_bytes(double(r.planned())),
               !r.stages.empty() ? fmt::format(" for stage {}", r.session.stage)
               : r.ranks > 1     ? fmt::format(" for each of {} ranks", r.ranks)
                                 : "");
  if (!r.cut_that_fits.empty()) fmt::print("--stages {} fits\n", r.cut_that_fits);
  if (!r.batch_that_fits && !r.fits()) return;
  if (!r.batch_that_fits)
    fmt::print("fits {}\n", where);
  else if (*r.batch_that_fits > 0)
    fmt::print("largest micro batch {}: {}\n", where, *r.batch_that_fits);
  else
    print_what_fits(s, r.rank_limit, where);
}

int run_plan(const PlanFlags& o) {
  if (o.blocks < 0) fail_usage(fmt::format("'{}' is out of range", o.blocks), "--blocks", "It must be at least 0.");
  constexpr double most_tokens = 1e18;
  if (o.tokens != 0 && !(o.tokens >= 1 && o.tokens <= most_tokens))
    fail_usage(fmt::format("'{}' is out of range", o.tokens), "--tokens",
               fmt::format("It must be from 1 to {:g}.", most_tokens));
  if (!(o.price >= 0)) fail_usage(fmt::format("'{}' is out of range", o.price), "--price", "It must be at least 0.");
  if (o.node_gpus && (*o.node_gpus < 1 || *o.node_gpus > 1024))
    fail_usage(fmt::format("'{}' is out of range", *o.node_gpus), "--node-gpus", "It must be from 1 to 1024.");
  if (o.device.device.find(',') != std::string::npos) return plan_devices(o);
  if (!o.explain.empty()) return explain_plan(o);
  if (o.beams) fail_usage("a plan has no beams", "--beams", "Give it with --explain memory.");
  PlanReport r = make_report(o);
  Prediction prediction = predict(o, r);
  if (!o.as_profile.empty()) {
    require_no_run_file(o.as_profile);
    if (r.ranks > 1) fail_usage("a profile covers one rank", "--as-profile", "Plan one rank.");
    if (!prediction.time)
      fail_usage("no calibration covers this step" +
                     (prediction.floors ? ", so its time is from the data sheet alone" : ": " + prediction.why_not),
                 "--as-profile",
                 "Give --calibration a file that crest calibrate wrote on such a device in this precision.");
    write_file_atomic(o.as_profile,
                      profile_document(*prediction.time, r.session, *prediction.calibration).dump() + "\n");
  }
  if (o.json) {
    nlohmann::ordered_json json = to_json(r, o.blocks);
    json["time"] = time_json(prediction, o);
    print_json(json);
  } else {
    print_plan(r, prediction, o);
  }
  return o.limit_given() && !r.fits() ? int(Exit::does_not_fit) : int(Exit::ok);
}

}  // namespace

std::function<int()> setup_plan(CLI::App& app) {
  auto o = std::make_shared<PlanFlags>();
  app.add_option("--memory", o->memory, "memory to plan for, e.g. 24GiB (default: what the device has available)")
      ->type_name("SIZE");
  app.add_option("--for", o->use,
                 "train: everything in crest train (with validation, without --sample-every); step: only a "
                 "training step; forward-saved: only a forward pass with its activations kept; eval, sample: what "
                 "crest eval and crest sample compile")
      ->capture_default_str();
  app.add_option(
         "--calibration", o->calibration,
         "predict times with this file (default: the one crest calibrate wrote for this device, else Crest's own "
         "for this model of GPU)")
      ->type_name("FILE");
  app.add_option(
         "--link", o->link,
         "links of a GPU, in one direction: inside a node (nvlink, pcie or a rate), and between nodes (default: "
         "the data sheet's), such as nvlink,400Gb")
      ->type_name("LINKS");
  app.add_option("--node-gpus", o->node_gpus, "GPUs of a node (default: the data sheet's, mostly 8)");
  app.add_option("--as-profile", o->as_profile,
                 "also write the predicted times of all instructions in the format of crest profile --json; crest "
                 "compare FILE RUN then shows where a prediction failed")
      ->type_name("FILE");
  app.add_option("--tokens", o->tokens, "tokens of a whole training: predict its steps and its time");
  app.add_option("--price", o->price, "price of a device for an hour, in any currency: adds the price of a token");
  app.add_option("--blocks", o->blocks, "rows in the table of the largest blocks")->capture_default_str();
  app.add_option("--explain", o->explain,
                 "print the formulas for memory, flops, batch or traffic instead of the plan, with their terms and the "
                 "figures of the Program")
      ->type_name("TOPIC");
  app.add_option("--beams", o->beams, fmt::format("beams of --explain memory (default: {})", ExplainOptions().beams));
  add_json_option(app, o->json);
  add_recipe_options(app, o->recipe);
  add_device_options(app, o->device);
  add_config_option(app);
  return [o] { return run_plan(*o); };
}

}  // namespace crest
