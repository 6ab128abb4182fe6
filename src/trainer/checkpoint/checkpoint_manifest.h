// manifest.json of a checkpoint: the size of every file and a SHA-256 over every byte, including
// the manifest itself.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/sha256.h"

namespace crest {

// As many as the name of a checkpoint's folder can hold.
inline constexpr int64_t most_checkpoint_steps = 999'999'999'999;

struct ManifestFile {
  uint64_t bytes = 0;
  // Of the whole file; for a safetensors file only of its header, because the tensors' hashes cover
  // the rest. So each byte is hashed once, and tensors are hashed in parallel.
  Digest sha256{};
  bool is_tensors = false;
  std::map<std::string, Digest> tensors;
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  int64_t step = 0;
  std::map<std::string, ManifestFile> files;
  bool operator==(const Manifest&) const = default;
};

// Equal manifests give equal text (no times, no host names), so a checkpoint with the same content
// can be recognized.
std::string print_manifest(const Manifest& manifest);
// Throws for anything not written by print_manifest; detects any changed bit.
Manifest parse_manifest(std::string_view text, const std::string& where);
// A file name without folders, as allowed in a manifest.
bool is_plain_file_name(std::string_view name);

}  // namespace crest
