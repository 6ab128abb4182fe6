#include "checkpoint/checkpoint_root.h"

#include <fmt/format.h>

#include <string_view>

#include "core/error.h"
#include "core/text.h"

namespace crest {

CheckpointRoot::CheckpointRoot(const std::string& root) {
  std::string path = root;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string above = parent_path(path);
  const std::string name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  Folder run = Folder::open(above);
  if (run.make(name)) run.sync();
  folder_ = run.folder_or_link(name);
  linked_ = run.linked() || folder_.linked();
  if (folder_.lock() == Folder::Lock::busy)
    fail("another process is saving checkpoints in this folder", printable(root),
         "Wait until it ends. Each run needs a folder of its own for its checkpoints.");
}

void CheckpointRoot::discard(const std::string& name) const {
  if (linked_) {
    std::string kept = ".kept-" + name;
    for (int i = 2; folder_.has(kept); ++i) kept = fmt::format(".kept-{}-{}", name, i);
    folder_.rename(name, kept);
    return;
  }
  // If interrupted, removing file by file would leave a partial checkpoint under its name: so the
  // name goes first.
  constexpr std::string_view trash_prefix = ".trash-";
  std::string trash = name;
  if (!name.starts_with(trash_prefix)) {
    trash = std::string(trash_prefix) + name;
    folder_.remove(trash);
    folder_.rename(name, trash);
  }
  folder_.remove(trash);
}

}  // namespace crest
