#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "model/config.h"
#include "model/parameters.h"
#include "model/weights_map.h"

using namespace crest;

TEST(Presets, ParameterCountsAreThePublishedOnes) {
  const std::map<std::string, int64_t> known = {
      {"gpt2-124M", 124439808},   {"gpt2-355M", 354823168}, {"gpt2-774M", 774030080},
      {"gpt2-1558M", 1557611200}, {"llama-1B", 1235814400}, {"llama-8B", 8030261248},
  };
  for (auto& [name, count] : known) EXPECT_EQ(parameter_count(load_model_config(name)), count) << name;
}

TEST(Presets, AreValidAndTheirFilesHoldTheirParameters) {
  for (auto& name : preset_names()) {
    ModelConfig c = load_model_config(name);
    EXPECT_NO_THROW(validate(c, name));
    int64_t in_file = 0;
    for (auto& t : canonical_tensors(c)) in_file += t.elements();
    EXPECT_EQ(in_file, parameter_count(c)) << name;
  }
}

TEST(Presets, UnknownNameNamesTheNearest) {
  try {
    load_model_config("gpt2-124m");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    EXPECT_NE(std::string(e.what()).find("'gpt2-124M'"), std::string::npos) << e.what();
  }
}
