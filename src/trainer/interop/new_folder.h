// A folder that appears complete or not at all.
#pragma once
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/io.h"
#include "core/text.h"

namespace crest {

// A hidden folder next to the result; removed unless it is published.
class NewFolder {
 public:
  // doing: part of the hidden name.
  NewFolder(const std::string& out, const char* doing) : out_(std::filesystem::absolute(out).lexically_normal()) {
    if (!out_.has_filename()) out_ = out_.parent_path();
    if (path_exists(out_.string())) fail("the output folder exists", printable(out_.string()), "Choose another --out.");
    create_directories(out_.parent_path().string());
    path_ = (out_.parent_path() / fmt::format(".{}.{}-{}", out_.filename().string(), doing, ::getpid())).string();
    remove_tree(path_);
    create_directory(path_);
  }
  ~NewFolder() {
    try {
      if (!path_.empty()) remove_tree(path_);
    } catch (const Error&) {  // it is hidden, and its name explains it
    }
  }
  std::string operator/(const std::string& name) const { return join_path(path_, name); }
  const std::string& path() const { return path_; }
  std::string publish() {
    sync_directory(path_);
    rename_path(path_, out_.string());
    path_.clear();
    sync_directory(out_.parent_path().string());
    return out_.string();
  }

 private:
  std::filesystem::path out_;
  std::string path_;
};

}  // namespace crest
