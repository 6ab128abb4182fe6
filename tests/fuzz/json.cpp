// The JSON guard, the manifest and the shard index.
#include "core/json.h"
#include "core/error.h"
#include "train/checkpoint_manifest.h"
#include "train/safetensors_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace crest;
  std::string_view text(reinterpret_cast<const char*>(data), bytes);
  try {
    (void)parse_json_guarded(text, {.bytes = 1 << 20, .depth = 16, .values = 10'000}, "fuzz").dump();
  } catch (const Error&) {
  }
  try {
    (void)parse_shard_index(text, "fuzz");
  } catch (const Error&) {
  }
  // A manifest is protected by its own hash, which random changes never hit: set it right, so that what is behind it is
  // reached too.
  try {
    std::string own = sha256_hex(text.data(), text.size());
    Manifest m = parse_manifest(std::string(text) + ",\n\"manifest_sha256\": \"" + own + "\"\n}\n", "fuzz");
    if (!(parse_manifest(print_manifest(m), "fuzz") == m)) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
