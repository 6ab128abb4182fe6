// The tokens of a post-processor before every text.
#include <nlohmann/json.hpp>

#include "data/helpers.h"
#include "data/tokenizer.h"

using namespace crest;
using namespace crest::test;
using Json = nlohmann::ordered_json;

TEST(TokenizerPrefix, IsOfTemplatesBeforeTheText) {
  Json json = Json::parse(read_file(std::filesystem::path(CREST_TEST_DIR) / "data/fixtures/llama3.json"));
  auto prefix = [&] { return Tokenizer::parse(json.dump(), "t.json").text_prefix(); };
  using Ids = std::vector<uint32_t>;
  EXPECT_EQ(prefix(), (Ids{421}));
  const Json processor = json["post_processor"], byte_level = Json::object({{"type", "ByteLevel"}});
  json["post_processor"] = Json::object({{"type", "Sequence"}, {"processors", Json::array({byte_level, processor})}});
  EXPECT_EQ(prefix(), (Ids{421}));
  json["post_processor"] = processor;
  json["post_processor"]["single"] = Json::array({processor["single"][1], processor["single"][0]});  // behind the text
  EXPECT_EQ(prefix(), Ids());
  for (const Json& other : {Json(), byte_level}) {
    json["post_processor"] = other;
    EXPECT_EQ(prefix(), Ids()) << other;
  }
}
