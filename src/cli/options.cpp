#include "cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>

#include "backend/cuda/loader.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/toml.h"
#include "passes/optimizers.h"
#include "passes/pass.h"
#include "plan/device.h"

namespace crest {

Device DeviceOptions::find() const {
  libraries.use();
  Device d = find_device(device, threads);
  for (auto& line : split(d.note, '\n'))
    if (!line.empty()) fmt::print(stderr, "crest: note: {}\n", printable(line, 1000));
  return d;
}

namespace {

struct NamedLibrary {
  const char *flag, *stem;
  std::string LibraryOptions::*path;
};
constexpr NamedLibrary named_libraries[] = {{"--cublaslt", "cublasLt", &LibraryOptions::cublaslt},
                                            {"--cudnn", "cudnn", &LibraryOptions::cudnn}};

void check_named(const NamedLibrary& l, const std::string& path) {
  std::string example = fmt::format("Name the file lib{}.so.N or the folder that it is in.", l.stem);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    fail_usage(fmt::format("there is no '{}'", printable(path)), l.flag, example);
  if (std::filesystem::is_directory(path, ignored) && !cuda::holds_library({path}, l.stem))
    fail_usage(fmt::format("'{}' has no lib{}.so", printable(path), l.stem), l.flag, example);
}

std::string absolute(const std::string& path) { return std::filesystem::absolute(path).lexically_normal().string(); }

}  // namespace

void LibraryOptions::check() const {
  for (auto& folder : split(folders, ':'))
    if (!folder.empty() && !is_directory(folder))
      fail_usage(fmt::format("there is no folder '{}'", printable(folder)), "--libraries",
                 "Name folders that hold CUDA's libraries (libcublasLt.so, libcudnn.so, ...), ':' between them.");
  for (auto& l : named_libraries)
    if (const std::string& path = this->*l.path; !path.empty()) check_named(l, path);
}

void LibraryOptions::use() const {
  check();
  if (*this == LibraryOptions()) return;
  cuda::LibraryChoice choice;
  for (auto& folder : split(folders, ':'))
    if (!folder.empty()) choice.folders.push_back(folder);
  for (auto& l : named_libraries)
    if (const std::string& path = this->*l.path; !path.empty()) choice.paths[l.stem] = path;
  cuda::choose_libraries(choice);
}

std::vector<std::pair<std::string, std::string>> LibraryOptions::flags() const {
  std::vector<std::pair<std::string, std::string>> list;
  std::vector<std::string> all;
  for (auto& folder : split(folders, ':'))
    if (!folder.empty()) all.push_back(absolute(folder));
  if (!all.empty()) list.emplace_back("--libraries", join(all, ":"));
  for (auto& l : named_libraries)
    if (const std::string& path = this->*l.path; !path.empty()) list.emplace_back(l.flag, absolute(path));
  return list;
}

const char* default_model(const Device& device) { return device.kind == "cuda" ? "micro" : "nano"; }

int64_t DeviceOptions::limit(const Device& d) const {
  return memory_limit.empty() ? d.memory : parse_bytes(memory_limit, "--memory-limit");
}

void add_device_options(CLI::App& app, DeviceOptions& o) {
  app.add_option("--device", o.device,
                 "auto, cpu, cuda[:N]; plan and program also take a device file (crest devices --sheets)")
      ->capture_default_str()
      ->group("Device");
  app.add_option("--threads", o.threads, "CPU threads (0: all usable)")->capture_default_str()->group("Device");
  app.add_option("--memory-limit", o.memory_limit, "refuse plans above this, for example 40GiB")->group("Device");
  add_library_options(app, o.libraries);
}

void add_library_options(CLI::App& app, LibraryOptions& o) {
  app.add_option("--libraries", o.folders, "DIR[:DIR]: where to look for CUDA's libraries first (crest devices)")
      ->group("Device");
  app.add_option("--cublaslt", o.cublaslt, "this cuBLASLt and no other: libcublasLt.so.N or its folder")
      ->group("Device");
  app.add_option("--cudnn", o.cudnn, "this cuDNN and no other: libcudnn.so.N or its folder")->group("Device");
}

void add_recipe_options(CLI::App& app, RecipeOptions& o) {
  const char* group = "Recipe";
  auto option = [&](const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str()->group(group);
  };
  Recipe& r = o.recipe;
  const std::string optimizers = optimizer_names();
  app.add_option("--model", o.model, "preset, TOML file, or folder with a Hugging Face config.json")->group(group);
  option("--batch", r.batch, "micro batch: sequences");
  app.add_option("--seq", r.seq, "sequence length (default: the model's context)")->group(group);
  option("--grad-accumulation", r.grad_accumulation, "micro steps of an optimizer step");
  option("--data-parallel", r.data_parallel, "ranks; they run as threads of this process")->check(CLI::Range(1, 64));
  option("--precision", r.precision, "auto (bf16 where the device has it), fp32, tf32, bf16, fp16");
  option("--policy", r.policy, "pure (half-precision weights, fp32 masters) or autocast (fp32 weights)");
  option("--grad-dtype", r.grad_dtype, "gradients of policy pure: fp32 or bf16");
  option("--attention", r.attention, "flash or naive");
  option("--fusion", r.fusion, "on or off");
  option("--pad-vocab", r.pad_vocab, "pads the vocabulary to a multiple (1: off)");
  option("--recompute", r.recompute,
         "auto (pointwise with fusion, else none), none, activation (GELU, SwiGLU: in the gradient's kernel), "
         "pointwise (norms too), selective (attention too) or full");
  option("--optimizer", r.optimizer, optimizers.c_str());
  option("--weight-decay", r.weight_decay, "decay of matrices");
  option("--beta1", r.beta1, "AdamW's first moment");
  option("--beta2", r.beta2, "AdamW's second moment");
  option("--eps", r.eps, "AdamW's epsilon");
  option("--clip", r.clip, "largest global gradient norm (0: off)");
  option("--loss-scale", r.loss_scale, "fp16: first dynamic loss scale");
  for (auto& pass : pipeline())
    for (auto& lever : pass.levers) {
      std::string& value = r.levers.emplace(lever.name, lever.otherwise).first->second;
      option(fmt::format("--{}", lever.name).c_str(), value, lever.help);
    }
  app.add_option("--vocab", o.vocab, "overrides the model's vocabulary")->group(group);
  app.add_option("--dropout", o.dropout, "overrides the model's dropout")->group(group);
  app.add_option("--kernel", o.kernels, "pins a kernel: OP=PATTERN, for example attention=cpu.*.reference")
      ->group(group)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--disable-pass", r.disabled_passes, "switches a pass off by name")
      ->group(group)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--deterministic", r.deterministic,
               "choose nothing by timing, no kernels whose bits vary (CPU kernels always give the same)")
      ->group(group);
}

Recipe RecipeOptions::finish(const std::string& default_model) const {
  Recipe r = recipe;
  r.model = load_model_config(model.empty() ? default_model : model);
  auto range = [](const char* flag, double value, bool good, const char* what) {
    if (!good) fail_usage(fmt::format("{} is not {}", value, what), flag);
  };
  range("--vocab", double(vocab), vocab >= 0, "a number of tokens");
  range("--seq", double(r.seq), r.seq >= 0, "a sequence length");
  range("--beta1", r.beta1, r.beta1 >= 0 && r.beta1 < 1, "in [0, 1)");
  range("--beta2", r.beta2, r.beta2 >= 0 && r.beta2 < 1, "in [0, 1)");
  range("--eps", r.eps, r.eps > 0 && std::isfinite(r.eps), "above 0");
  range("--clip", r.clip, r.clip >= 0 && std::isfinite(r.clip), "a gradient norm");
  range("--weight-decay", r.weight_decay, r.weight_decay >= 0 && std::isfinite(r.weight_decay), "a decay");
  range("--loss-scale", r.loss_scale, r.loss_scale >= 1 && std::isfinite(float(r.loss_scale)),
        "at least 1 and finite in fp32");
  if (vocab > 0) r.model.vocab = vocab;
  if (dropout >= 0) r.model.dropout = dropout;
  for (auto& k : kernels) {
    size_t equals = k.find('=');
    if (equals == std::string::npos) fail_usage("'" + printable(k) + "' is not OP=PATTERN", "--kernel");
    r.kernels.emplace_back(k.substr(0, equals), k.substr(equals + 1));
  }
  return r;
}

void add_json_option(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "one JSON document on standard output");
}

void add_config_option(CLI::App& app) {
  app.add_option("--config", "TOML file with any of these flags as keys; flags win");
}

namespace {

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options())
    for (auto& n : o->get_lnames()) names.push_back("--" + n);
  return names;
}

std::string scalar_text(const toml::node& node, const std::string& where) {
  if (auto* s = node.as_string()) return s->get();
  if (auto* i = node.as_integer()) return std::to_string(i->get());
  if (auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
  if (auto* b = node.as_boolean()) return b->get() ? "true" : "false";
  fail_usage("must be a string, a number, true, false or a list of those", where);
}

std::string config_of_run(const std::string& run) {
  std::string path = join_path(run, "config.toml");
  if (!is_directory(run)) fail("there is no such run", printable(run), "--resume takes the folder that --out named.");
  if (!path_exists(path))
    fail("this is not the folder of a run: it has no config.toml", printable(run),
         "--resume takes the folder that --out named.");
  return path;
}

// The keys of a TOML file as arguments.
std::vector<std::string> config_arguments(const CLI::App& app, const std::string& path) {
  std::vector<std::string> args, names = long_names(app);
  toml::table table = parse_toml(read_file(path, 4 << 20), path);
  for (auto&& [key, node] : table) {
    std::string flag = "--" + std::string(key.str());
    std::replace(flag.begin(), flag.end(), '_', '-');
    std::string where = fmt::format("{}, key {}", path, printable(key.str()));
    if (std::find(names.begin(), names.end(), flag) == names.end() || flag == "--config" || flag == "--help") {
      std::vector<std::string> keys;
      for (auto& n : names) {
        keys.push_back(n.substr(2));
        std::replace(keys.back().begin(), keys.back().end(), '-', '_');
      }
      fail_usage(fmt::format("unknown key '{}'", printable(key.str())), path, did_you_mean(key.str(), keys));
    }
    if (auto* array = node.as_array()) {
      for (auto& element : *array) args.push_back(flag + "=" + scalar_text(element, where));
    } else {
      args.push_back(flag + "=" + scalar_text(node, where));
    }
  }
  return args;
}

}  // namespace

void parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::string> args, from_file;
  const CLI::Option* resume = app.get_option_no_throw("--resume");
  bool resumes = resume && resume->get_items_expected_max() > 0;  // of a run: its own config.toml comes first
  for (int i = 0; i < argc; ++i) {
    std::string a = argv[i];
    if (a == "--config" && i + 1 < argc)
      from_file = config_arguments(app, argv[++i]);
    else if (a.rfind("--config=", 0) == 0)
      from_file = config_arguments(app, a.substr(9));
    else if (resumes && a == "--resume" && i + 1 < argc)
      from_file = config_arguments(app, config_of_run(argv[i + 1])), args.push_back(a);
    else if (resumes && a.rfind("--resume=", 0) == 0)
      from_file = config_arguments(app, config_of_run(a.substr(9))), args.push_back(a);
    else
      args.push_back(a);
  }
  // Flags win: a key of the file that is also a flag on the command line is dropped.
  auto flag_of = [](const std::string& a) { return a.substr(0, a.find('=')); };
  for (auto& a : args) std::erase_if(from_file, [&](auto& f) { return flag_of(f) == flag_of(a); });
  args.insert(args.begin(), from_file.begin(), from_file.end());
  // CLI11 takes the next argument for the value that "--flag=" leaves empty.
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].size() > 3 && args[i].rfind("--", 0) == 0 && args[i].find('=') == args[i].size() - 1) {
      args[i].pop_back();
      args.insert(args.begin() + std::ptrdiff_t(i) + 1, "");
    }
  std::reverse(args.begin(), args.end());
  app.allow_extras();
  app.parse(args);
  for (auto& extra : app.remaining()) {
    if (extra.rfind("-", 0) == 0 && extra != "-")
      fail_usage(fmt::format("unknown flag '{}'", printable(flag_of(extra))), app.get_name(),
                 did_you_mean(flag_of(extra), long_names(app)) + fmt::format(" See {} --help.", app.get_name()));
    fail_usage(fmt::format("unexpected argument '{}'", printable(extra)), app.get_name(),
               fmt::format("See {} --help.", app.get_name()));
  }
}

}  // namespace crest
