#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_root.h"
#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/system_error.h"
#include "core/text.h"

namespace crest {

static const std::string temporary_prefix = ".tmp-", trash_prefix = ".trash-", replaced_prefix = ".replaced-";

std::string checkpoint_name(int64_t step) { return fmt::format("step-{:06}", step); }

std::optional<int64_t> step_in_name(std::string_view name) {
  if (name.starts_with(replaced_prefix)) name.remove_prefix(replaced_prefix.size());
  if (!name.starts_with("step-")) return std::nullopt;
  name.remove_prefix(5);
  if (name.size() < 6 || name.size() > 18) return std::nullopt;
  int64_t step = 0;
  for (char c : name) {
    if (c < '0' || c > '9') return std::nullopt;
    step = step * 10 + (c - '0');
  }
  return checkpoint_name(step).size() == name.size() + 5 ? std::optional(step) : std::nullopt;
}

std::vector<CheckpointFolder> list_checkpoints(const std::string& root) {
  std::vector<CheckpointFolder> out;
  for (auto& name : names_in(root)) {
    auto step = step_in_name(name);
    if (step && kind_of(join_path(root, name)) == PathKind::folder)
      out.push_back({*step, name.starts_with(replaced_prefix), name});
  }
  std::sort(out.begin(), out.end(), [](const CheckpointFolder& a, const CheckpointFolder& b) {
    return a.step != b.step ? a.step > b.step : a.replaced < b.replaced;
  });
  return out;
}

void label_checkpoint(const Folder& root, const std::string& label, const std::string& name) {
  if (!root.link_atomic(label, name)) root.write_atomic(label, name + "\n");
}

std::string labeled_checkpoint(const std::string& root, const std::string& label) {
  const std::string path = join_path(root, label);
  std::error_code error;
  std::string name = std::filesystem::read_symlink(path, error).string();
  if (error && kind_of(path) == PathKind::file) {
    // Another file of this name may be large.
    char start[32];
    name.assign(start, File::open_read(path).read_some_at(start, sizeof start, 0));
    if (!name.empty() && name.back() == '\n') name.pop_back();
  }
  return step_in_name(name) && name[0] != '.' ? name : "";
}

// Throws where it cannot be read: then nothing is known about it, and it stays as it is.
static bool is_valid(const std::string& folder) {
  try {
    Checkpoint::open(folder).verify();
    return true;
  } catch (const SystemError& e) {
    if (!e.missing()) throw;
    return false;
  } catch (const Error&) {
    return false;
  }
}

// Cleans up after an interrupted save: removes temporary folders, and completes or reverts a
// half-done replacement.
static void clean_up(const CheckpointRoot& root) {
  const Folder& folder = root.folder();
  for (auto& name : folder.names()) {
    if (name.starts_with(temporary_prefix) || name.starts_with(trash_prefix)) root.discard(name);
    if (!name.starts_with(replaced_prefix)) continue;
    std::string original = name.substr(replaced_prefix.size());
    std::string here = join_path(folder.path(), name), there = join_path(folder.path(), original);
    if (folder.has(original) && (is_valid(there) || !is_valid(here))) {
      root.discard(name);
      continue;
    }
    if (folder.has(original)) root.discard(original);
    folder.rename(name, original);
    folder.sync();
  }
}

static void retain(const CheckpointRoot& root, int keep, const std::string& just_written) {
  const std::string best = labeled_checkpoint(root.folder().path(), best_label);
  int kept = 0;
  for (auto& found : list_checkpoints(root.folder().path())) {
    if (found.replaced) continue;
    if (++kept <= keep || found.name == just_written || found.name == best) continue;
    root.discard(found.name);
  }
}

static ManifestFile describe_tensors(const std::vector<TensorSource>& tensors) {
  std::vector<size_t> order;
  std::string preamble = safetensors_preamble(tensors, TensorOrder::canonical, {}, &order);
  ManifestFile file{preamble.size(), sha256(preamble.data(), preamble.size()), true, {}};
  auto digests = hash_tensors(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    file.bytes += byte_count(tensors[i].spec);
    file.tensors.emplace(tensors[i].spec.name, digests[i]);
  }
  return file;
}

static Manifest describe_contents(const CheckpointContents& contents, std::map<std::string, std::string>* files) {
  if (contents.step < 0 || contents.step > most_checkpoint_steps) fail_internal("a checkpoint of an impossible step");
  parse_json_guarded(contents.state, {}, "the state to be saved");
  *files = contents.files;
  for (auto& [name, bytes] : *files)
    if (!is_plain_file_name(name) || name == "state.json" || name == "manifest.json" || name == "model.safetensors" ||
        name == "optimizer.safetensors")
      fail_internal(fmt::format("a checkpoint cannot hold an extra file named '{}'", printable(name)));
  (*files)["state.json"] = fmt::format("{{\"step\": {}, {}\"state\": {}}}\n", contents.step,
                                       contents.finite_weights ? "" : "\"finite_weights\": false, ", contents.state);
  Manifest manifest;
  manifest.step = contents.step;
  for (auto& [name, bytes] : *files)
    manifest.files[name] = {bytes.size(), sha256(bytes.data(), bytes.size()), false, {}};
  manifest.files["model.safetensors"] = describe_tensors(contents.weights);
  if (!contents.optimizer.empty()) manifest.files["optimizer.safetensors"] = describe_tensors(contents.optimizer);
  return manifest;
}

// Moves the complete, synced folder to its name. An earlier checkpoint of this name moves aside
// first and stands for the step (list_checkpoints) until the new one is in place: whichever of the
// two renames reaches the disk, one of them is there.
static void publish(const Folder& root, const std::string& temporary, const std::string& name) {
  if (root.has(name)) root.rename(name, replaced_prefix + name);
  root.rename(temporary, name);
  root.sync();
}

SaveResult save_checkpoint(const CheckpointContents& contents, const std::string& root_path, int keep) {
  std::map<std::string, std::string> files;
  Manifest manifest = describe_contents(contents, &files);
  std::string manifest_text = print_manifest(manifest);
  SaveResult result;
  std::string name = checkpoint_name(contents.step), temporary = temporary_prefix + name;
  result.path = join_path(root_path, name);
  result.bytes = manifest_text.size();
  for (auto& [file_name, file] : manifest.files) result.bytes += file.bytes;

  CheckpointRoot root(root_path);
  const Folder& folder = root.folder();
  clean_up(root);
  if (std::string there = join_path(result.path, "manifest.json"); path_exists(there)) {
    try {
      result.already_there = read_file(there, manifest_text.size()) == manifest_text && is_valid(result.path);
    } catch (const Error&) {  // unreadable or larger: not the same, and replaced once the new one is on disk
    }
  }
  if (!result.already_there) {
    // Every file uses whole blocks, and the folder needs some too. 1 MiB is left for the run's
    // logs.
    uint64_t slack = (uint64_t(1) << 20) + 4096 * (manifest.files.size() + 4);
    require_free_space(root_path, result.bytes + slack, "a checkpoint");
    try {
      if (!folder.make(temporary)) fail("another process is saving this checkpoint", printable(result.path));
      Folder inside = folder.folder(temporary);
      write_safetensors(inside.create("model.safetensors"), contents.weights);
      if (!contents.optimizer.empty()) write_safetensors(inside.create("optimizer.safetensors"), contents.optimizer);
      for (auto& [file_name, bytes] : files) inside.write_synced(file_name, bytes);
      inside.write_synced("manifest.json", manifest_text);
      inside.sync();
      publish(folder, temporary, name);
    } catch (const Error&) {
      // Free the space again. If that fails too, the next save cleans up.
      try {
        folder.remove(temporary);
        if (!folder.has(name) && folder.has(replaced_prefix + name)) folder.rename(replaced_prefix + name, name);
      } catch (const Error&) {
      }
      throw;
    }
  }
  auto attempt = [&](const char* what, auto action) {
    try {
      action();
    } catch (const Error& e) {
      result.warnings.push_back(fmt::format("the checkpoint is saved, but {}: {}", what, e.what()));
    }
  };
  attempt("the hint 'latest' is not", [&] { label_checkpoint(folder, latest_label, name); });
  attempt("an old one could not be removed", [&] {
    if (std::string aside = replaced_prefix + name; folder.has(aside)) root.discard(aside);
    if (keep > 0 && !root.linked()) retain(root, keep, name);
  });
  return result;
}

}  // namespace crest
