// crest program: the Program of a training step as text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/text.h"
#include "plan/compile.h"
#include "plan/plan_json.h"
#include "plan/plan_report.h"
#include "plan/program_after.h"
#include "predict/defaults.h"
#include "program/op.h"
#include "program/text.h"
#include "terminal/print_json.h"

namespace crest {

namespace {

struct ProgramFlags {
  RecipeOptions recipe;
  DeviceOptions device;
  std::string after, segment = "train";
  int stage = 0;
  bool passes = false, memory = false, plain = false, json = false;
};

ProgramSpec wanted_spec(const Recipe& r, const std::string& segment) {
  SessionUse use;
  use.train = use.forward_saved = use.update = use.validation = use.sampling = true;
  std::vector<std::string> names;
  for (auto& spec : session_programs(r, use)) {
    if (spec.name == segment) return spec;
    names.push_back(spec.name);
  }
  // `train` means the first micro step when there are several.
  if (segment == "train") return session_programs(r, use)[0];
  fail_usage(fmt::format("'{}' is not a Program of this recipe", printable(segment)), "--segment",
             fmt::format("{} Programs: {}.", did_you_mean(segment, names), join(names, ", ")));
}

void print_pass_list(bool json) {
  auto list = nlohmann::ordered_json::array();
  for (auto& p : pipeline()) {
    auto settings = nlohmann::ordered_json::array();
    if (p.settings)
      for (auto& s : p.settings()) settings.push_back(s.name);
    list.push_back({{"name", p.name}, {"help", p.help}, {"settings", settings}, {"required", p.required != nullptr}});
    if (!json) fmt::print("{:<20} {}\n", p.name, p.help);
  }
  if (json) print_json(list);
}

void print_program(const CompiledProgram& c, const ProgramFlags& o) {
  PrintOptions options;
  if (!o.plain)
    options.comment = [&](const Program& p, int i) {
      const Instr& instr = p.code[size_t(i)];
      Cost cost = instr.op->cost(p, instr);
      std::string text = fmt::format("{}, {}, {}", format_si(cost.flops, "FLOP"), format_bytes(cost.bytes()),
                                     c.kernels[size_t(i)]->name);
      for (ValueId v : instr.out) {
        int block = c.memory.block_of_value[size_t(p.at(v).layout.storage)];
        if (block >= 0) text += fmt::format(", at {}", c.memory.blocks[size_t(block)].offset);
      }
      return text;
    };
  fmt::print("{}", print(c.program, options));
  if (o.memory) fmt::print("\n{}", print(c.memory, c.program));
  double seconds = 0;
  std::string timings;
  for (auto& t : c.timings) {
    seconds += t.seconds;
    timings += fmt::format("# {:<20} {}\n", t.name, format_duration(t.seconds));
  }
  fmt::print("\n# {} instructions, {} values; passes, kernels and memory plan took {}\n{}", c.program.code.size(),
             c.program.values.size(), format_duration(seconds), timings);
}

int run_program(const ProgramFlags& o) {
  if (o.passes) {
    print_pass_list(o.json);
    return 0;
  }
  Device device = o.device.find();
  const Recipe given = o.recipe.finish("nano");
  const int64_t limit = limit_of_rank(given, device, o.device.limit(device));
  Recipe recipe = resolve(with_defaults(given, rank_device(given, device), limit, o.device.device), device);
  ProgramSpec spec = wanted_spec(recipe, o.segment);
  const int stages = recipe.layout().size(Axis::pipeline);
  if (o.stage < 0 || o.stage >= stages)
    fail_usage(fmt::format("there is no stage {}", o.stage), "--stage",
               stages > 1 ? fmt::format("Stages: 0 to {}.", stages - 1) : "Add --mesh pipeline=2 for two stages.");
  spec.stage = o.stage;
  if (!o.after.empty()) {
    if (o.json) fail_usage("--after prints text only", "--json", "Leave out one of them.");
    fmt::print("{}", print(program_after(recipe, device, spec, o.after)));
    return 0;
  }
  const CompiledSession session = compile(recipe, device, {spec}, {.stage = o.stage});
  if (o.json && session.programs.size() > 1)
    fail_usage("a pipeline stage has several Programs", "--json", "Leave it out for text.");
  if (o.json) {
    fmt::print("{}\n", program_json(session.programs[0]));
    return 0;
  }
  for (const CompiledProgram& c : session.programs) print_program(c, o);
  return 0;
}

}  // namespace

std::function<int()> setup_program(CLI::App& app) {
  auto o = std::make_shared<ProgramFlags>();
  add_recipe_options(app, o->recipe);
  add_device_options(app, o->device);
  add_config_option(app);
  add_json_option(app, o->json);
  app.add_option("--segment", o->segment,
                 "train, train.first, train.next, train.last, train.forward (phase forward-saved), update, validation, "
                 "prefill, decode, or start (--fp8-weights update)")
      ->capture_default_str();
  app.add_option("--stage", o->stage, "with --mesh pipeline=P: the stage")->capture_default_str();
  app.add_option("--after", o->after, "print the Program right after this pass (model: before the first)")
      ->type_name("PASS");
  app.add_flag("--passes", o->passes, "list the passes");
  app.add_flag("--memory", o->memory, "add the memory plan");
  app.add_flag("--plain", o->plain, "leave out FLOPs, bytes, kernels and offsets");
  return [o] { return run_program(*o); };
}

}  // namespace crest
