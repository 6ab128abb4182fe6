#include "data/staging.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/io.h"
#include "core/text.h"

namespace crest {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view set_aside = "-old";

fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

// A link stays: what is replaced is the folder that it names, so the new one is made next to that.
fs::path normal_path(const fs::path& out) {
  constexpr int most_links = 40;  // as many as Linux follows
  std::error_code ignored;        // of a working folder that is gone: the next call reports it
  fs::path path = without_slash(fs::absolute(out, ignored).lexically_normal());
  for (int links = 0; links < most_links && fs::is_symlink(path, ignored); ++links)
    path = without_slash(fs::weakly_canonical(path.parent_path() / fs::read_symlink(path, ignored), ignored));
  return path;
}

// Names of folders next to `out` begin with this; the number of their process follows.
std::string prefix_of(const fs::path& out) { return fmt::format(".{}.preparing-", out.filename().string()); }

struct Beside {
  fs::path path;
  int process;
  bool old;  // to be replaced
};

std::vector<Beside> folders_beside(const fs::path& out) {
  std::vector<Beside> all;
  std::error_code ignored;
  std::string prefix = prefix_of(out);
  for (auto& entry : fs::directory_iterator(out.parent_path(), ignored)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    int process = std::atoi(name.c_str() + prefix.size());
    if (process > 0) all.push_back({entry.path(), process, name.ends_with(set_aside)});
  }
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.path < b.path; });
  return all;
}

bool is_gone(int process) { return ::kill(process, 0) != 0 && errno == ESRCH; }

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
    if (!is_gone(beside.process)) {
      advice = fmt::format(
          "Process {} is replacing it: try again later. If that process is not preparing data, move {} back.",
          beside.process, lies);
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
  for (auto& beside : folders_beside(out_))  // of killed processes
    if (is_gone(beside.process) && (!beside.old || path_exists(out_.string()))) remove_quietly(beside.path);
  path_ = out_.parent_path() / fmt::format("{}{}", prefix_of(out_), ::getpid());
  remove_tree(path_.string());
  create_directory(path_.string());
}

StagingFolder::~StagingFolder() {
  if (!path_.empty()) remove_quietly(path_);
}

void StagingFolder::publish(bool overwrite) {
  std::string here = path_.string(), there = out_.string(), folder = out_.parent_path().string();
  sync_directory(here);
  if (!overwrite || !path_exists(there)) {
    rename_path(here, there);
    path_.clear();
    sync_directory(folder);
    return;
  }
  std::string old = here;
  if (!exchange_paths(here, there)) {
    old += set_aside;
    rename_path(there, old);
    try {
      rename_path(here, there);
    } catch (const Error& e) {
      if (syscalls->renameat(AT_FDCWD, old.c_str(), AT_FDCWD, there.c_str()) != 0)
        fail(e.problem(), e.where(), fmt::format("The old data is in {}; move it back.", old));
      throw;
    }
  }
  path_.clear();  // until the names are safe, the replaced data stays
  sync_directory(folder);
  remove_quietly(old);
}

}  // namespace crest
