// Small languages in other people's model folders: chat templates, and patterns of module names.
#include <nlohmann/json.hpp>

#include "checkpoint/name_pattern.h"
#include "data/jinja.h"
#include "fuzz.h"

using namespace crest;
using namespace crest::fuzz;

static void fuzz_templates(std::string_view input) {
  static const nlohmann::ordered_json variables = {
      {"messages", {{{"role", "system"}, {"content", "s"}}, {{"role", "user"}, {"content", " a\nb "}}}},
      {"bos_token", "<s>"},
      {"eos_token", "</s>"},
      {"add_generation_prompt", true}};
  const unsigned way = choose(input, 2);
  or_error([&] {
    if (way == 0) (void)JinjaTemplate(input, "template").render(variables);
    if (way == 1) (void)NamePattern(std::string(input), "pattern").matches("model.layers.12.self_attn.q_proj");
  });
}
CREST_FUZZ_TARGET(fuzz_templates)
