#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/checkpoint.h"
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

// If interrupted, removing file by file would leave a partial checkpoint under its name: so the
// name goes first.
static void discard(const std::string& root, const std::string& name) {
  std::string trash = join_path(root, trash_prefix + name);
  remove_tree(trash);
  rename_path(join_path(root, name), trash);
  remove_tree(trash);
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
static void clean_up(const std::string& root) {
  for (auto& name : names_in(root)) {
    if (name.starts_with(temporary_prefix) || name.starts_with(trash_prefix)) remove_tree(join_path(root, name));
    if (!name.starts_with(replaced_prefix)) continue;
    std::string original = name.substr(replaced_prefix.size());
    std::string here = join_path(root, name), there = join_path(root, original);
    if (path_exists(there) && (is_valid(there) || !is_valid(here))) {
      discard(root, name);
      continue;
    }
    if (path_exists(there)) discard(root, original);
    rename_path(here, there);
    sync_directory(root);
  }
}

static void retain(const std::string& root, int keep, const std::string& just_written) {
  int kept = 0;
  for (auto& folder : list_checkpoints(root)) {
    if (folder.replaced) continue;
    if (++kept <= keep || folder.name == just_written) continue;
    discard(root, folder.name);
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

// Moves the complete, synced folder to its name. A checkpoint of that name moves aside first and
// stands for this step (list_checkpoints) until the new one is in place: whichever of the two
// renames reaches the disk, one of them is there.
static void publish(const std::string& root, const std::string& temporary, const std::string& name) {
  std::string final_path = join_path(root, name);
  if (path_exists(final_path)) rename_path(final_path, join_path(root, replaced_prefix + name));
  rename_path(temporary, final_path);
  sync_directory(root);
}

SaveResult save_checkpoint(const CheckpointContents& contents, const std::string& root, int keep) {
  std::map<std::string, std::string> files;
  Manifest manifest = describe_contents(contents, &files);
  std::string manifest_text = print_manifest(manifest);
  SaveResult result;
  std::string name = checkpoint_name(contents.step), temporary = join_path(root, temporary_prefix + name);
  result.path = join_path(root, name);
  result.bytes = manifest_text.size();
  for (auto& [file_name, file] : manifest.files) result.bytes += file.bytes;

  if (!is_directory(root)) {  // not its parent: a run whose folder is gone gets no new one
    create_directory(root);
    sync_directory(parent_path(root));
  }
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
    require_free_space(root, result.bytes + slack, "a checkpoint");
    try {
      create_directory(temporary);
      write_safetensors(join_path(temporary, "model.safetensors"), contents.weights);
      if (!contents.optimizer.empty())
        write_safetensors(join_path(temporary, "optimizer.safetensors"), contents.optimizer);
      for (auto& [file_name, bytes] : files) write_file_synced(join_path(temporary, file_name), bytes);
      write_file_synced(join_path(temporary, "manifest.json"), manifest_text);
      sync_directory(temporary);
      publish(root, temporary, name);
    } catch (const Error&) {
      // Free the space again. If that fails too, the next save cleans up.
      try {
        remove_tree(temporary);
        if (!path_exists(result.path) && path_exists(join_path(root, replaced_prefix + name)))
          rename_path(join_path(root, replaced_prefix + name), result.path);
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
  attempt("the hint 'latest' is not", [&] { write_file_atomic(join_path(root, "latest"), name + "\n"); });
  attempt("an old one could not be removed", [&] {
    if (std::string aside = replaced_prefix + name; path_exists(join_path(root, aside))) discard(root, aside);
    if (keep > 0) retain(root, keep, name);
  });
  return result;
}

}  // namespace crest
