// The folder of a run's checkpoints, open for changes.
#pragma once
#include <string>

#include "core/folder.h"

namespace crest {

// While this object lives, no other process can change the checkpoints (flock).
class CheckpointRoot {
 public:
  // Creates the folder if the one above it exists.
  explicit CheckpointRoot(const std::string& root);

  const Folder& folder() const { return folder_; }
  // Whether the folder or the one above it, the run, is a symbolic link. Then the user keeps the
  // checkpoints elsewhere, and no earlier file is deleted.
  bool linked() const { return linked_; }
  // Removes a checkpoint or its remains. Through a link it only gets another name, .kept-*.
  void discard(const std::string& name) const;

 private:
  Folder folder_;
  bool linked_;
};

}  // namespace crest
