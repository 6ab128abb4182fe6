#include "device/device_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "backend/cuda/loader.h"
#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "device/find.h"
#include "device/rank_device.h"

namespace crest {

Device DeviceOptions::find() const {
  libraries.use();
  // Not for a single process: --device auto must say why a GPU is not used.
  std::string own = processes == 1 ? device : device_of_rank(device, {local_rank, processes}, usable_gpus(device));
  Device d = find_device(own, threads);
  for (auto& line : split(d.note, '\n'))
    if (notes && !line.empty()) to_stderr("crest: note: {}\n", printable(line, 1000));
  d.threads = std::max(1, d.threads / processes);
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
  std::string example = fmt::format("Give the file lib{}.so.N or its folder.", l.stem);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    fail_usage(fmt::format("'{}' does not exist", printable(path)), l.flag, example);
  if (std::filesystem::is_directory(path, ignored) && !cuda::holds_library({path}, l.stem))
    fail_usage(fmt::format("'{}' has no lib{}.so", printable(path), l.stem), l.flag, example);
}

std::string absolute(const std::string& path) { return std::filesystem::absolute(path).lexically_normal().string(); }

}  // namespace

void LibraryOptions::check() const {
  for (auto& folder : split(folders, ':'))
    if (!folder.empty() && !is_directory(folder))
      fail_usage(fmt::format("no such folder: '{}'", printable(folder)), "--libraries",
                 "Give folders with CUDA libraries (libcublasLt.so, libcudnn.so, ...), separated by ':'.");
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

bool LibraryOptions::is_flag(const std::string& flag) {
  return flag == "--libraries" ||
         std::any_of(std::begin(named_libraries), std::end(named_libraries), [&](auto& l) { return flag == l.flag; });
}

int64_t DeviceOptions::limit(const Device& d) const {
  int64_t bytes = memory_limit.empty() ? d.memory : parse_bytes(memory_limit, "--memory-limit");
  return d.kind == "cuda" ? bytes : bytes / processes;  // a rank has a GPU of its own, and a share of the host
}

std::vector<std::string> DeviceOptions::flags() const {
  std::vector<std::string> list;
  if (device != "auto") list.push_back("--device=" + device);
  if (threads > 0) list.push_back(fmt::format("--threads={}", threads));
  if (!memory_limit.empty()) list.push_back("--memory-limit=" + memory_limit);
  for (auto& [flag, value] : libraries.flags()) list.push_back(flag + "=" + value);
  return list;
}

const std::vector<Setting>& device_settings() {
  const char* group = "Device";
  static const std::vector<Setting> rows = {
      setting<&DeviceOptions::device>(
          {.name = "device",
           .group = group,
           .help = "auto, cpu, cuda[:N]; plan, program, advise and tune also accept a device you do not "
                   "have, e.g. h100 (crest devices --sheets), or a TOML file",
           .example = "cuda:1",
           .common = true,
           .local = true}),
      setting<&DeviceOptions::threads>({.name = "threads",
                                        .group = group,
                                        .help = "CPU threads per step; 0: all usable",
                                        .min = 0,
                                        .max = 65536,
                                        .local = true}),
      setting<&DeviceOptions::memory_limit>({.name = "memory-limit",
                                             .group = group,
                                             .help = "reject plans that need more memory than this",
                                             .default_value = "what the device has",
                                             .example = "40GiB",
                                             .local = true})};
  return rows;
}

}  // namespace crest
