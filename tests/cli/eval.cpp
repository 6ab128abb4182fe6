#include <nlohmann/json.hpp>

#include "cli/saved_model_command.h"
#include "device/find.h"
#include "device/matmul_rates.h"
#include "host/isa.h"

using namespace crest;
using namespace crest::test;
using Json = nlohmann::json;

namespace {

class EvalCommand : public SavedModelTest {
 protected:
  CommandResult eval(const std::string& arguments, const std::string& run = *shared_ / "run") {
    return run_crest("eval --device cpu --precision fp32 --run '" + run + "' " + arguments, folder_);
  }
  static std::string data() { return "--data '" + *shared_ / "data" + "' "; }
};

}  // namespace

TEST_F(EvalCommand, TextAndJson) {
  CommandResult r = eval(data() + "--batch 2 --seq 16 --batches 3 --split train --json");
  ASSERT_EQ(r.code, 0) << r.err;
  Json j = Json::parse(r.out);
  EXPECT_EQ(j["tokens"], 96);
  EXPECT_EQ(j["split"], "train");
  EXPECT_EQ(j["seq"], 16);
  EXPECT_EQ(j["step"], 100);
  EXPECT_NEAR(std::log(j["perplexity"].get<double>()), j["loss"].get<double>(), 1e-9);
  CommandResult text = eval(data());
  for (auto part : {"loss", "perplexity", "bits/byte", "of split val"}) EXPECT_TRUE(contains(text.out, part)) << part;
}

// Training and evaluation read the same table of matmul rates.
TEST_F(EvalCommand, AutomaticPrecisionIsTheFasterOne) {
  if (best_isa() < Isa::avx512_bf16) GTEST_SKIP() << "this processor has no bf16";
  for (const char* faster : {"fp32", "bf16"}) {
    nlohmann::json rates = {{"fp32", 1e11}, {"bf16", 1e11}};
    rates[faster] = 2e11;
    write_text(folder_ / "cache/matmul-rates.json",
               Json{{"format", 1}, {"rates", {{matmul_rates_key(cpu_device(active_isa(), 1)), rates}}}}.dump());
    const std::string with = "env CREST_CACHE='" + folder_ / "cache' '" + crest_binary() + "' ";
    auto precision = [&](const std::string& command) {
      const std::string out = folder_ / "json";
      EXPECT_EQ(std::system((with + command + " --device cpu --json > '" + out + "' 2> /dev/null").c_str()), 0);
      return Json::parse(read_all(out))["precision"];
    };
    const std::string run = " --run '" + *shared_ / "run' ";
    EXPECT_EQ(precision("eval" + run + data() + "--batches 1"), faster);
    EXPECT_EQ(precision("sample" + run + "--prompt a --max-tokens 1"), faster);
  }
}

TEST_F(EvalCommand, WrongUsage) {
  for (auto [arguments, part] : std::vector<std::pair<std::string, std::string>>{{data() + "--split test", "--split"},
                                                                                 {data() + "--seq 34", "context of 33"},
                                                                                 {data() + "--batch 0", "--batch"},
                                                                                 {data() + "--batches=-1", "--batches"},
                                                                                 {data() + "--bach 2", "--batch"},
                                                                                 {"", "--data"}}) {
    CommandResult r = eval(arguments);
    EXPECT_EQ(r.code, 2) << arguments << r.err;
    EXPECT_TRUE(contains(r.err, part)) << arguments << ": " << r.err;
  }
  EXPECT_EQ(run_crest("eval " + data(), folder_).code, 2);
  EXPECT_EQ(eval("--data '" + folder_ / "nothing'").code, 1);
  EXPECT_EQ(eval(data(), folder_ / "nothing").code, 1);
}

// The error comes before anything is loaded: here even the model is missing.
TEST_F(EvalCommand, LogitsThatCannotBeWrittenAreToldFirst) {
  for (const std::string& file : {folder_ / "no/such/folder/logits.safetensors", folder_ / "."}) {
    CommandResult r = eval(data() + "--logits '" + file + "'", folder_ / "nothing");
    EXPECT_EQ(r.code, 1);
    EXPECT_TRUE(contains(r.err, file)) << r.err;
  }
}
