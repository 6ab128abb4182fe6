// Files in TOML: models, devices, experiments and their grids. A clear error, or a result within
// its limits.
#include "device/data_sheet.h"
#include "fuzz.h"
#include "lab/experiment.h"
#include "model/config_files.h"
#include "model/parameters.h"

using namespace crest;
using namespace crest::fuzz;

static void as_experiment(std::string_view text) {
  lab::Experiment e = lab::parse_experiment(text, "fuzz.toml");
  for (const char* device : {"cpu", "cuda"}) or_error([&] { (void)lab::measurements_of(e, "tiny", device); });
}

static void fuzz_toml_files(std::string_view text) {
  unsigned way = choose(text, 3);
  or_error([&] {
    if (way == 0) {
      ModelConfig c = parse_model_toml(text, "fuzz.toml");
      check(c.layers >= 1 && c.heads * c.head_dim >= 1 && parameter_count(c) > 0);
      check(parameter_count(parse_model_toml(to_toml(c), "written.toml")) == parameter_count(c));
    }
    if (way == 1) (void)parse_data_sheet(std::string(text), "fuzz", "fuzz.toml");
    if (way == 2) as_experiment(text);
  });
}
CREST_FUZZ_TARGET(fuzz_toml_files)
