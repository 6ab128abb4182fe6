// Pointers of Git LFS: small texts left by `git clone` in place of files it did not fetch.
#pragma once
#include <string>
#include <string_view>

namespace crest {

inline constexpr std::string_view lfs_pointer_start = "version https://git-lfs.github.com/spec/";

// Throws if a file with this beginning is one. where: the file.
void refuse_lfs_pointer(std::string_view start, const std::string& where);

}  // namespace crest
