#include "core/git_lfs.h"

#include "core/error.h"
#include "core/text.h"

namespace crest {

void refuse_lfs_pointer(std::string_view start, const std::string& where) {
  if (start.starts_with(lfs_pointer_start))
    fail("is a pointer of Git LFS, not the file itself", printable(where),
         "Fetch it: git lfs install && git lfs pull. Or download the file.");
}

}  // namespace crest
