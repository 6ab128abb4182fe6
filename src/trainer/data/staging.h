// A folder of prepared data, or an imported or exported model, appears under its name complete, or
// not at all. The folder it replaces stays until then.
#pragma once
#include <filesystem>
#include <string>

#include "core/folder.h"

namespace crest {

// A folder next to the result (next to the target of a symbolic link). It is removed unless it is
// published. Its lock (flock) tells other processes about its use: process numbers say nothing to
// another container.
class StagingFolder {
 public:
  explicit StagingFolder(const std::filesystem::path& out);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& out() const { return out_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

  // Gives the folder its name. overwrite: replaces a folder of that name. A kill at any moment
  // leaves the old or the new data under the name. If the file system cannot exchange two names in
  // one step, a kill may leave the old data next to it, and put_back_replaced finds it.
  void publish(bool overwrite);

 private:
  bool take();
  std::filesystem::path out_, path_;
  Folder folder_;  // locked
};

// Throws if something has the name of the result.
void require_new(const std::filesystem::path& out);

// Gives data its name back if a preparation was killed after setting it aside. Returns "", or the
// necessary step of the user if this is not possible.
std::string put_back_replaced(const std::filesystem::path& folder);

}  // namespace crest
