// The JSON guard, the manifest and the shard index.
#include "core/json.h"

#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/safetensors_folder.h"
#include "fuzz.h"

using namespace crest;
using namespace crest::fuzz;

static void fuzz_json(std::string_view text) {
  unsigned way = choose(text, 4);
  or_error([&] {
    if (way == 0) (void)parse_json_guarded(text, {.bytes = 1 << 20, .depth = 16, .values = 10'000}, "fuzz").dump();
    if (way == 1) (void)parse_ordered_json_guarded(text, {.keys = 1000}, "fuzz").dump();
    if (way == 2) (void)parse_shard_index(text, "fuzz");
    if (way != 3) return;
    // A manifest is protected by its own hash, never hit by random changes: set it right, to reach
    // the code behind it too.
    std::string own = sha256_hex(text.data(), text.size());
    Manifest m = parse_manifest(std::string(text) + ",\n\"manifest_sha256\": \"" + own + "\"\n}\n", "fuzz");
    check(parse_manifest(print_manifest(m), "fuzz") == m);
  });
}
CREST_FUZZ_TARGET(fuzz_json)
