// The hash of a base model's weights, and its cache: hashing a large model takes many seconds.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>

#include "checkpoint/for_each_tensor.h"
#include "checkpoint/weights_io.h"
#include "core/cache_folder.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"

namespace crest {

namespace {

constexpr int64_t settled_seconds = 3;  // a later change may have the same times

// Changes with the files and their content, without reading them. "": unknown, or a change of these
// seconds may not show in their times.
std::string stamp_of(const WeightsFolder& folder) {
  std::string stamp;
  for (auto& file : folder.files()) {
    struct stat info;
    if (::stat(file.path().c_str(), &info) != 0 || info.st_mtim.tv_sec > std::time(nullptr) - settled_seconds)
      return "";
    auto time = [](const timespec& t) { return fmt::format("{}.{:09}", t.tv_sec, t.tv_nsec); };
    stamp +=
        fmt::format("{} {} {} {} {}\n", info.st_dev, info.st_ino, info.st_size, time(info.st_mtim), time(info.st_ctim));
  }
  return sha256_hex(stamp.data(), stamp.size());
}

std::string cached_file(const std::string& stamp) {
  const std::string folder = cache_folder();
  return stamp.empty() || folder.empty() ? "" : join_path(folder, "weights-hash/" + stamp);
}

std::string read_cached(const std::string& file) {
  if (file.empty() || !path_exists(file)) return "";
  try {
    const std::string hash = read_file(file, 64);
    return hash.size() == 64 && hash.find_first_not_of("0123456789abcdef") == std::string::npos ? hash : "";
  } catch (const Error&) {
    return "";
  }
}

void write_cached(const std::string& file, const std::string& hash) {
  if (file.empty()) return;
  try {
    create_directories(parent_path(file));
    write_file_atomic(file, hash);
  } catch (const Error&) {  // a cache for reading only
  }
}

std::string line_of(const TensorSpec& spec, const Digest& digest) {
  std::string shape;
  for (int64_t n : spec.shape) shape += fmt::format(" {}", n);
  return fmt::format("{} {}{} {}\n", spec.name, name(spec.dtype), shape, to_hex(digest));
}

std::string hash_of_lines(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  const std::string text = join(lines, "");
  return sha256_hex(text.data(), text.size());
}

std::string hash_of_files(const WeightsFolder& folder) {
  std::vector<Digest> digests(folder.tensors().size());
  uint64_t bytes = 0;
  for (auto& item : folder.tensors()) bytes += byte_count(item.spec);
  for_each_tensor(digests.size(), bytes, [&](size_t i) {
    auto& item = folder.tensors()[i];
    digests[i] = folder.files()[item.file].hash(item.index);
  });
  std::vector<std::string> lines;
  for (size_t i = 0; i < digests.size(); ++i) lines.push_back(line_of(folder.tensors()[i].spec, digests[i]));
  return hash_of_lines(std::move(lines));
}

}  // namespace

std::string weights_hash(const LoadedModel& model) {
  if (model.checkpoint) {
    std::vector<std::string> lines;
    for (auto& spec : model.checkpoint->weight_specs())
      lines.push_back(line_of(spec, model.checkpoint->weight_digest(spec.name)));
    return hash_of_lines(std::move(lines));
  }
  const WeightsFolder folder = WeightsFolder::open(model.weights_path);
  const std::string stamp = stamp_of(folder), file = cached_file(stamp);
  if (std::string known = read_cached(file); !known.empty()) return known;
  const std::string hash = hash_of_files(folder);
  if (stamp_of(folder) == stamp) write_cached(file, hash);
  return hash;
}

}  // namespace crest
