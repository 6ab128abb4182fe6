// An open folder. Its files are named below the descriptor, so a move or replacement of a folder
// above it has no effect. Symbolic links in the folder are not followed.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/io.h"

namespace crest {

class Folder {
 public:
  Folder() = default;
  // Owns an open descriptor.
  Folder(int fd, std::string path, bool linked = false) : fd_(fd), linked_(linked), path_(std::move(path)) {}
  ~Folder();
  Folder(Folder&& other) noexcept;
  Folder& operator=(Folder&& other) noexcept;
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // A folder named by the user: links are followed.
  static Folder open(const std::string& path);
  // The working folder: names are paths.
  static Folder here();
  // A folder in this one. A link is an error, or followed.
  Folder folder(const std::string& name) const { return open_below(name, false); }
  Folder folder_or_link(const std::string& name) const { return open_below(name, true); }

  // Whether a symbolic link led here.
  bool linked() const { return linked_; }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  // Whether the path still leads here.
  bool is_at(const std::string& path) const;

  // A new file for writing; an existing name is an error.
  File create(const std::string& name) const;
  // The same after removing an old entry of this name, except a folder.
  File create_anew(const std::string& name) const;
  // For writing at the end.
  File append(const std::string& name) const;
  // For reading; regular files only.
  File open_read(const std::string& name) const;
  // A new file: write, sync, close. For folders published later.
  void write_synced(const std::string& name, std::string_view bytes) const;
  // As write_file_atomic. A link, folder, pipe or device of this name is an error.
  void write_atomic(const std::string& name, std::string_view bytes) const;
  // Afterwards the name is a symbolic link to `target`, in place of an earlier link or file. At
  // every moment before, it is the earlier one. Returns false if the file system has no links.
  bool link_atomic(const std::string& name, const std::string& target) const;
  // Creates a folder; false: the name is taken.
  bool make(const std::string& name) const;
  void rename(const std::string& from, const std::string& to) const;
  // A file, a link or a folder with its contents. A missing name is fine.
  void remove(const std::string& name) const;
  // Makes creations, renames and removals survive power loss.
  void sync() const;

  bool has(const std::string& name) const;
  // Throws if the name is a symbolic link.
  void refuse_link(const std::string& name) const;
  // Sorted, without . and ..
  std::vector<std::string> names() const;

  // Takes the lock of the folder (flock) if it is free; it ends with this object, or the process.
  // unknown: the file system has no locks.
  enum class Lock { held, busy, unknown };
  Lock lock() const;

 private:
  Folder open_below(const std::string& name, bool follow) const;
  std::string path_of(const std::string& name) const { return join_path(path_, name); }
  [[noreturn]] void fail_open(const char* doing, const std::string& name) const;

  int fd_ = -1;
  bool linked_ = false;
  std::string path_;
};

}  // namespace crest
