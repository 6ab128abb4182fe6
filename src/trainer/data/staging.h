// A folder of prepared data appears under its name complete, or not at all. The folder it replaces
// stays until then.
#pragma once
#include <filesystem>
#include <string>

namespace crest {

// A folder next to the result (if that is a symbolic link: next to what it names). It is removed
// unless it is published.
class StagingFolder {
 public:
  explicit StagingFolder(const std::filesystem::path& out);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& out() const { return out_; }

  // Gives the folder its name. overwrite: replaces a folder of that name. A kill at any moment
  // leaves the old or the new data under the name. If the file system cannot exchange two names in
  // one step, a kill may leave the old data next to it, and put_back_replaced finds it.
  void publish(bool overwrite);

 private:
  std::filesystem::path out_, path_;
};

// Gives data its name back if a preparation was killed after setting it aside. Returns "", or what
// the user must do if that is not possible.
std::string put_back_replaced(const std::filesystem::path& folder);

}  // namespace crest
