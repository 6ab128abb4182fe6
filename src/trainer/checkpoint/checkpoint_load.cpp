#include <fmt/format.h>

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "checkpoint/for_each_tensor.h"
#include "core/error.h"
#include "core/json.h"
#include "core/system_error.h"
#include "core/text.h"

namespace crest {

static constexpr uint64_t max_small_files = uint64_t(512) << 20;

[[noreturn]] static void fail_damaged(const std::string& what, const std::string& where) {
  fail("damaged checkpoint: " + what, printable(where),
       "Use an older checkpoint. If this happens again, check disk and memory.");
}

Checkpoint Checkpoint::open(const std::string& folder) {
  Checkpoint out;
  out.path_ = folder;
  if (kind_of(folder) != PathKind::folder)
    fail("no such checkpoint folder", printable(folder), "Give a folder checkpoints/step-NNNNNN of a run.");
  std::string manifest_path = join_path(folder, "manifest.json");
  if (kind_of(manifest_path) == PathKind::nothing)
    fail_damaged("it has no manifest.json (its save was interrupted)", folder);
  out.manifest_ = parse_manifest(read_file(manifest_path, uint64_t(64) << 20), manifest_path);
  std::error_code unknown;  // "." and a link have no step in their name
  const auto named = step_in_name(std::filesystem::canonical(folder, unknown).filename().string());
  if (named && *named != out.manifest_.step)
    fail_damaged(fmt::format("the folder name does not match the step in it ({})", out.manifest_.step), folder);
  for (const char* name : {"state.json", "model.safetensors"})
    if (!out.manifest_.files.count(name)) fail_damaged(fmt::format("its manifest has no {}", name), folder);
  uint64_t small_bytes = 0;
  for (auto& [name, record] : out.manifest_.files) {
    std::string path = join_path(folder, name);
    if (kind_of(path) == PathKind::nothing) fail_damaged("the file is missing", path);
    uint64_t size = File::open_read(path).size();
    if (size != record.bytes)
      fail_damaged(fmt::format("it has {} bytes, but the manifest says {}", size, record.bytes), path);
    if (!record.is_tensors) {
      small_bytes += size;
      if (small_bytes > max_small_files) fail_damaged("its small files are too large", path);
      std::string bytes = read_file(path, record.bytes);
      if (sha256(bytes.data(), bytes.size()) != record.sha256)
        fail_damaged("the content does not match its hash", path);
      out.files_.emplace(name, std::move(bytes));
      continue;
    }
    SafetensorsFile file = SafetensorsFile::open(path);
    if (file.header_digest() != record.sha256) fail_damaged("the header does not match its hash", path);
    if (file.tensors().size() != record.tensors.size()) fail_damaged("the manifest lists different tensors", path);
    for (auto& t : file.tensors())
      if (!record.tensors.count(t.spec.name))
        fail_damaged(fmt::format("the manifest has no tensor '{}'", printable(t.spec.name)), path);
    out.tensors_.emplace(name, std::move(file));
  }
  if (!out.tensors_.count("model.safetensors")) fail_damaged("its manifest lists no tensors", folder);
  std::string state_path = join_path(folder, "state.json");
  nlohmann::json state = parse_json_guarded(out.files_.at("state.json"), {}, state_path);
  if (!state.is_object() || !state.contains("state") ||
      state.value("step", nlohmann::json()) != nlohmann::json(out.manifest_.step))
    fail_damaged("step and state do not match the manifest", state_path);
  out.state_ = state["state"].dump();
  out.finite_weights_ = true;
  if (auto finite = state.find("finite_weights"); finite != state.end()) {
    if (!finite->is_boolean()) fail_damaged("\"finite_weights\" is neither true nor false", state_path);
    out.finite_weights_ = finite->get<bool>();
  }
  return out;
}

static uint64_t total_bytes(const SafetensorsFile& file) {
  uint64_t total = 0;
  for (auto& t : file.tensors()) total += t.bytes;
  return total;
}

static void compare(const Digest& found, const Digest& expected, const TensorEntry& tensor, const std::string& path) {
  if (found != expected)
    fail_damaged(fmt::format("tensor '{}' does not match its hash", printable(tensor.spec.name)), path);
}

void Checkpoint::verify() const {
  for (auto& [name, file] : tensors_) {
    auto& expected = manifest_.files.at(name).tensors;
    for_each_tensor(file.tensors().size(), total_bytes(file), [&, &file = file](size_t i) {
      auto& t = file.tensors()[i];
      compare(file.hash(i), expected.at(t.spec.name), t, file.path());
    });
  }
}

const std::string* Checkpoint::file(const std::string& name) const {
  auto at = files_.find(name);
  return at == files_.end() ? nullptr : &at->second;
}

std::vector<TensorSpec> Checkpoint::specs(const std::string& name) const {
  std::vector<TensorSpec> out;
  if (auto at = tensors_.find(name); at != tensors_.end())
    for (auto& t : at->second.tensors()) out.push_back(t.spec);
  return out;
}

void Checkpoint::require(const std::string& name, const std::vector<TensorSpec>& expected) const {
  require_same_tensors(expected, specs(name), name == "model.safetensors" ? "weights" : "optimizer state",
                       join_path(path_, name));
}

void Checkpoint::load(const std::string& name, const std::vector<TensorTarget>& targets) const {
  std::vector<TensorSpec> expected;
  for (auto& t : targets) expected.push_back(t.spec);
  require(name, expected);
  if (targets.empty()) return;
  auto& file = tensors_.at(name);
  auto& digests = manifest_.files.at(name).tensors;
  for_each_tensor(targets.size(), total_bytes(file), [&](size_t i) {
    auto index = size_t(file.find(targets[i].spec.name));
    auto& t = file.tensors()[index];
    std::vector<char> scratch(targets[i].take ? size_t(t.bytes) : 0);
    void* to = targets[i].take ? scratch.data() : targets[i].data;
    compare(file.read_hashed(index, to, t.bytes), digests.at(t.spec.name), t, file.path());
    if (targets[i].take) targets[i].take(scratch.data());
  });
}

std::optional<Checkpoint> find_checkpoint(const std::string& root,
                                          const std::function<void(const std::string&)>& report) {
  std::vector<std::string> damaged;
  auto report_skipped = [&](const std::string& instead) {
    if (report)
      for (auto& text : damaged) report(fmt::format("skipped {}\n  {}", text, instead));
  };
  auto add_damaged = [&](const Error& e, const std::string& path) {
    damaged.push_back(fmt::format("{}: {}", printable(e.where().empty() ? path : e.where()), e.problem()));
  };
  for (auto& folder : list_checkpoints(root)) {
    std::string path = join_path(root, folder.name);
    try {
      Checkpoint checkpoint = Checkpoint::open(path);
      checkpoint.verify();
      if (!checkpoint.finite_weights()) fail("its weights contain NaN or infinity", path);
      report_skipped("Using " + checkpoint.path() + " instead.");
      return checkpoint;
    } catch (const SystemError& e) {
      // An unreadable checkpoint may be whole: an older one instead of it would lose steps without
      // need.
      if (!e.missing())
        throw Error(e.code(), e.problem(), e.where(),
                    fmt::format("{}{}To use an older checkpoint, move {} away.", e.advice(),
                                e.advice().empty() ? "" : " ", printable(path)));
      add_damaged(e, path);
    } catch (const Error& e) {
      add_damaged(e, path);
    }
  }
  report_skipped("No other checkpoint is valid.");
  return std::nullopt;
}

}  // namespace crest
