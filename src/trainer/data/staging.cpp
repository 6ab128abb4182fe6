#include "data/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/hmac.h"
#include "core/io.h"
#include "core/system_error.h"
#include "core/text.h"

namespace crest {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view set_aside = "-old";

fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

// A link stays: its target folder is replaced, so the new one is made next to the target.
fs::path normal_path(const fs::path& out) {
  constexpr int most_links = 40;  // as many as Linux follows
  std::error_code ignored;        // of a deleted working folder: the next call reports it
  fs::path path = without_slash(fs::absolute(out, ignored).lexically_normal());
  for (int links = 0; links < most_links && fs::is_symlink(path, ignored); ++links)
    path = without_slash(fs::weakly_canonical(path.parent_path() / fs::read_symlink(path, ignored), ignored));
  return path;
}

// Names of folders next to `out` begin with this; random digits follow.
std::string prefix_of(const fs::path& out) { return fmt::format(".{}.preparing-", out.filename().string()); }

struct Beside {
  fs::path path;
  bool old;  // to be replaced
};

std::vector<Beside> folders_beside(const fs::path& out) {
  std::vector<Beside> all;
  std::error_code ignored;
  std::string prefix = prefix_of(out);
  for (auto& entry : fs::directory_iterator(out.parent_path(), ignored))
    if (std::string name = entry.path().filename().string(); name.starts_with(prefix))
      all.push_back({entry.path(), name.ends_with(set_aside)});
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.path < b.path; });
  return all;
}

// The maker or replacer of a folder holds its lock, in whatever container. nullopt: the folder is
// locked, or this is unknown. Otherwise it is not locked by others while the result lives.
std::optional<Folder> take_abandoned(const fs::path& path) {
  try {
    Folder folder = Folder::open(path.string());
    if (!folder.linked() && folder.lock() == Folder::Lock::held && folder.is_at(path.string())) return folder;
  } catch (const Error&) {  // it is gone, or no folder
  }
  return std::nullopt;
}

void remove_quietly(const fs::path& path) {
  try {
    remove_tree(path.string());
  } catch (const Error&) {  // the next preparation removes the rest
  }
}

}  // namespace

std::string put_back_replaced(const fs::path& folder) {
  fs::path out = normal_path(folder);
  std::string advice;
  if (path_exists(out.string())) return advice;
  for (auto& beside : folders_beside(out)) {
    if (!beside.old) continue;
    std::string lies = printable(beside.path.string(), 1000);
    auto abandoned = take_abandoned(beside.path);
    if (!abandoned) {
      advice = fmt::format(
          "Another process is replacing it: try again later. If no process is preparing data, move {} back.", lies);
      continue;
    }
    try {
      rename_path(beside.path.string(), out.string());
      return "";
    } catch (const Error&) {
      if (path_exists(out.string())) return "";  // another process was faster
      advice = fmt::format("A preparation was killed while replacing it. The old data is in {}; move it back.", lies);
    }
  }
  return advice;
}

StagingFolder::StagingFolder(const fs::path& out) : out_(normal_path(out)) {
  create_directories(out_.parent_path().string());
  put_back_replaced(out_);
  for (auto& beside : folders_beside(out_)) {  // of killed processes
    auto abandoned = take_abandoned(beside.path);
    if (abandoned && (!beside.old || path_exists(out_.string()))) remove_quietly(beside.path);
  }
  // Until it is locked, another process may take the folder for an abandoned one.
  do path_ = out_.parent_path() / (prefix_of(out_) + random_hex(8));
  while (!make_directory(path_.string()) || !take());
}

bool StagingFolder::take() {
  try {
    folder_ = Folder::open(path_.string());
  } catch (const SystemError& e) {
    if (e.missing()) return false;
    remove_quietly(path_);
    throw;
  }
  return folder_.lock() != Folder::Lock::busy && folder_.is_at(path_.string());
}

StagingFolder::~StagingFolder() {
  if (!path_.empty()) remove_quietly(path_);
}

void require_new(const fs::path& out) {
  if (path_exists(without_slash(out).string()))
    fail(fs::is_directory(out) ? "the output folder exists" : "the output file exists", printable(out.string()),
         "Choose another --out.");
}

void StagingFolder::publish(bool overwrite) {
  std::string here = path_.string(), there = out_.string(), folder = out_.parent_path().string();
  folder_.sync();
  if (!overwrite || !path_exists(there)) {
    rename_path(here, there);
    path_.clear();
    sync_directory(folder);
    return;
  }
  // Somebody else's lock is as good: the folder is not abandoned.
  Folder replaced = Folder::open(there);
  replaced.lock();
  std::string old = here;
  if (!exchange_paths(here, there)) {
    old += set_aside;
    rename_path(there, old);
    try {
      rename_path(here, there);
    } catch (const Error& e) {
      try {
        rename_path(old, there);
      } catch (const Error&) {
        fail(e.problem(), e.where(), fmt::format("The old data is in {}; move it back.", printable(old, 1000)));
      }
      throw;
    }
  }
  path_.clear();  // until the names are safe, the replaced data stays
  sync_directory(folder);
  remove_quietly(old);
}

}  // namespace crest
