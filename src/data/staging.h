// A folder of prepared data appears under its name complete, or not at all; what it replaces stays until then.
#pragma once
#include <filesystem>
#include <string>

namespace crest {

// A folder beside the result that is removed unless it is published.
class StagingFolder {
 public:
  explicit StagingFolder(const std::filesystem::path& out);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& out() const { return out_; }

  // Gives the folder its name. overwrite: what has the name is replaced. A kill at any moment leaves the old data or
  // the new under the name; where the file system cannot exchange two names in one step, it may leave the old data
  // beside it, and put_back_replaced finds it.
  void publish(bool overwrite);

 private:
  std::filesystem::path out_, path_;
};

// Data that a preparation had set aside when it was killed gets its name back. Returns "", or what the user must do
// where that is not possible.
std::string put_back_replaced(const std::filesystem::path& folder);

}  // namespace crest
