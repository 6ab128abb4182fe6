// Files in JSON: a Hugging Face config.json, meta.json of a data folder, kernel choices of a
// checkpoint, a profile. A clear error, or a result within its limits.
#include "backend/choices.h"
#include "core/json.h"
#include "data/dataset.h"
#include "fuzz.h"
#include "model/config_files.h"
#include "model/parameters.h"
#include "profile/profile.h"

using namespace crest;
using namespace crest::fuzz;

static void as_profile(std::string_view text) {
  Profile p = profile_from_json(parse_ordered_json_guarded(text, {.keys = 1000}, "fuzz"), "fuzz");
  (void)by_phase(p), (void)by_layer(p), (void)by_class(p), (void)by_kernel(p), (void)by_place(p);
  (void)memory_timeline(p);
  check(profile_from_json(to_json(p), "written").instrs.size() == p.instrs.size());
}

static void fuzz_json_files(std::string_view text) {
  unsigned way = choose(text, 4);
  or_error([&] {
    if (way == 0) check(parameter_count(parse_huggingface_config(text, "fuzz")) > 0);
    if (way == 1) check(read_meta(as_file(text)).vocab_size > 0);
    if (way == 2) {
      auto table = parse_choices(text, "fuzz");
      check(parse_choices(to_json(table), "written") == table);
    }
    if (way == 3) as_profile(text);
  });
}
CREST_FUZZ_TARGET(fuzz_json_files)
