// manifest.json of a checkpoint: the size of every file and a SHA-256 over every byte, the manifest's own bytes
// included.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/sha256.h"

namespace crest {

struct ManifestFile {
  uint64_t bytes = 0;
  // Of the whole file; of a safetensors file only the header, since the tensors' hashes cover the rest: each byte is
  // hashed once, and tensors are hashed in parallel.
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

// Equal manifests give equal text (no times, no host names): a checkpoint of the same content is recognised by it.
std::string print_manifest(const Manifest& manifest);
// Throws for anything that print_manifest did not write; one changed bit anywhere is found.
Manifest parse_manifest(std::string_view text, const std::string& where);
// A file name without folders that may stand in a manifest.
bool is_plain_file_name(std::string_view name);

}  // namespace crest
