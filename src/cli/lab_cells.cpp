#include "cli/lab_cells.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "cli/bench_options.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/text.h"
#include "lab/columns.h"
#include "model/config_files.h"
#include "plan/device.h"

namespace crest {

namespace {

class CellMaker {
 public:
  CellMaker(const lab::Experiment& e, const lab::CellSpec& spec, const Device& device, int64_t limit) : e_(e) {
    cell_.spec = spec, cell_.device = device, cell_.limit = limit;
  }

  LabCell make() {
    for (auto& [key, value] : cell_.spec.settings) {
      if (lab::measure_keys().count(key))
        measure_setting(key, value);
      else if (e_.kind == lab::Kind::gemm)
        gemm_setting(key, value);
      else if (lab::model_size_keys().count(key))
        sizes_.emplace_back(key, value);
      else
        flags_.push_back("--" + flag_of(key) + "=" + value);
    }
    try {
      if (e_.kind == lab::Kind::gemm)
        check_gemm();
      else
        make_recipe();
    } catch (const Error& error) {
      if (error.code() != Exit::usage) throw;
      fail_usage(error.problem(), where() + (error.where().empty() ? "" : ", " + error.where()), error.advice());
    }
    return std::move(cell_);
  }

 private:
  static std::string flag_of(std::string key) {
    std::replace(key.begin(), key.end(), '_', '-');
    return key;
  }
  std::string where() const {
    return printable(e_.file) + (cell_.spec.label.empty() ? "" : ", cell " + printable(cell_.spec.label));
  }

  double number(const std::string& key, const std::string& value, double low, double high) const {
    double x = 0;
    auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), x);
    if (error != std::errc() || end != value.data() + value.size() || !(x >= low && x <= high))
      fail_usage(fmt::format("'{}' is not a value of {}", printable(value), key), where(),
                 fmt::format("It must be a number from {} to {}.", low, high));
    return x;
  }

  void measure_setting(const std::string& key, const std::string& value) {
    if (key == "phase") {
      std::vector<BenchPhase> phases = phases_of(value);
      if (phases.size() != 1) fail_usage("write phase = [\"forward\", \"backward\", \"step\"]", where());
      cell_.phase = phases[0];
    } else if (key == "memory_limit") {
      cell_.limit = parse_bytes(value, where());
    } else if (key == "device") {
      if (e_.kind != lab::Kind::plan)
        fail_usage("only what is planned can be of another device", where(),
                   "Leave `device` out, or take kind = \"plan\".");
      cell_.device = find_device(value, 0);
      cell_.limit = cell_.device.memory;
    } else if (key == "max_seconds") {
      cell_.max_seconds = number(key, value, 0, 3600);
    } else {
      int x = int(number(key, value, key == "warmup" ? 0 : 1, 100'000));
      (key == "samples" ? cell_.samples : key == "warmup" ? cell_.warmup : cell_.device.threads) = x;
    }
  }

  void gemm_setting(const std::string& key, const std::string& value) {
    if (key == "precision") {
      cell_.precision = value;
      return;
    }
    int64_t* size = key == "m" ? &cell_.m : key == "n" ? &cell_.n : key == "k" ? &cell_.k : nullptr;
    if (!size)
      fail_usage(fmt::format("a gemm experiment has no key '{}'", printable(key)), where(),
                 "Keys: m, n, k, precision, samples, warmup, max_seconds, threads.");
    *size = int64_t(number(key, value, 1, 1 << 20));
  }

  void check_gemm() {
    if (!cell_.m || !cell_.n || !cell_.k || cell_.precision.empty())
      fail_usage("a gemm experiment needs m, n, k and precision", where());
    const std::vector<std::string> known = {"fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"};
    if (std::find(known.begin(), known.end(), cell_.precision) == known.end())
      fail_usage(fmt::format("'{}' is no precision", printable(cell_.precision)), where(),
                 did_you_mean(cell_.precision, known));
    const std::vector<std::string> multiplied = {"fp32", "tf32", "bf16", "fp16"};
    if (std::find(multiplied.begin(), multiplied.end(), cell_.precision) == multiplied.end())
      cell_.absent = "no kernel multiplies " + cell_.precision + " yet";
    if (cell_.precision == "tf32" && cell_.device.kind == "cpu") cell_.absent = "the CPU has no tf32";
  }

  void make_recipe() {
    RecipeOptions options;
    CLI::App app{"cell", "experiment"};
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    add_recipe_options(app, options);
    std::vector<const char*> argv;
    for (auto& f : flags_) argv.push_back(f.c_str());
    try {
      parse_command_line(app, int(argv.size()), argv.data());
    } catch (const CLI::ParseError& error) {
      fail_usage(error.what(), where(), "Keys are the recipe flags of crest bench, with '_'.");
    }
    Recipe recipe = options.finish(default_model(cell_.device));
    if (!sizes_.empty()) resize(recipe, options);
    validate(recipe);
    try {
      cell_.recipe = resolve(recipe, cell_.device);
    } catch (const Error& error) {  // a valid recipe that this device cannot run
      if (error.code() != Exit::usage) throw;
      cell_.absent = error.problem();
    }
  }

  // The model with other sizes, as a file of the user's would say it.
  void resize(Recipe& recipe, const RecipeOptions& options) const {
    std::string base = options.model.empty() ? default_model(cell_.device) : options.model;
    std::string name = base, text = fmt::format("preset = \"{}\"\n", base);
    for (auto& [key, value] : sizes_) {
      bool word = key == "norm" || key == "position" || key == "activation";
      text += word ? fmt::format("{} = \"{}\"\n", key, value) : fmt::format("{} = {}\n", key, value);
      name += fmt::format(" {} {}", key, value);
    }
    ModelConfig model = parse_model_toml(text, where());
    model.name = name, model.vocab = recipe.model.vocab, model.dropout = recipe.model.dropout;
    recipe.model = model;
  }

  const lab::Experiment& e_;
  LabCell cell_;
  std::vector<std::string> flags_;
  std::vector<std::pair<std::string, std::string>> sizes_;
};

}  // namespace

std::vector<LabCell> lab_cells(const lab::Experiment& e, const std::string& scale, const Device& device,
                               int64_t limit) {
  std::vector<LabCell> cells;
  for (auto& spec : lab::cells_of(e, scale, device.kind)) cells.push_back(CellMaker(e, spec, device, limit).make());
  return cells;
}

}  // namespace crest
