// Impossible numbers in a checkpoint: an error before anything is changed.
#include "train/run_state.h"

#include <nlohmann/json.hpp>

#include "train/run_fixture.h"

using namespace crest;
using namespace crest::test;

namespace {

class SavedState : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    TrainOptions o = options();
    o.save_every = 2, o.keep = 0;
    ASSERT_FALSE(run_training(o).interrupted);
    state_ = nlohmann::json::parse(read("state.json"));
  }
  std::string path(const std::string& name) const { return folder / "run/checkpoints/step-000004/" + name; }
  std::string read(const std::string& name) const { return read_file(path(name), 1 << 20); }
  // A checkpoint with right hashes around another state.json.
  void write(const nlohmann::json& state) const {
    const std::string text = state.dump();
    Manifest manifest = parse_manifest(read("manifest.json"), "manifest.json");
    manifest.files["state.json"] = {text.size(), sha256(text.data(), text.size()), false, {}};
    write_file_synced(path("state.json"), text);
    write_file_synced(path("manifest.json"), print_manifest(manifest));
  }
  std::string resumed() const {
    TrainOptions o = options();
    o.resume = true, o.steps = 6;
    return error_of([&] { run_training(o); });
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (auto& saved : list_checkpoints(folder / "run/checkpoints")) names.push_back(saved.name);
    return names;
  }
  nlohmann::json state_;
};

}  // namespace

TEST_F(SavedState, ValidationsThatNoRunHasAreRefused) {
  const nlohmann::json good = {{"step", 4}, {"waited", 1}, {"best_step", 2}, {"best", 1.5}, {"reference", 2}};
  const std::vector<std::pair<std::string, nlohmann::json>> bad = {
      {"step", 5}, {"waited", -1}, {"best_step", 5}, {"best", nullptr}, {"reference", "2"}};
  for (auto& [key, value] : bad) {
    nlohmann::json state = state_;
    state["state"]["validation"] = good;
    state["state"]["validation"][key] = value;
    write(state);
    const std::string error = resumed();
    EXPECT_TRUE(contains(error, "step-000004/state.json, validation") && contains(error, "'" + key + "'")) << error;
  }
}

TEST_F(SavedState, NumbersThatNoRunHasAreRefused) {
  const std::vector<std::pair<std::string, std::vector<nlohmann::json>>> bad = {
      {"step", {-5, 2, 5, 4.5, "4", int64_t(1) << 60, nullptr}},
      {"total_steps", {-1, int64_t(1) << 60}},
      {"seed", {-1}},
      {"last_good", {-1, 5}},
      {"bad_steps", {-1, 1}},
      {"threads", {-1, int64_t(1) << 32}},
      {"train_tokens", {-1}},
      {"seq", {0, -32}},
      {"samples", {-8, 0, 9}},
      {"adam_step", {-1, 3, 5}},
      {"skipped", {-1, int64_t(1) << 40}},
      {"good_steps", {-1, 5}},
      {"loss_scale", {-1, 0, 1e300, nullptr}},
  };
  for (auto& [key, values] : bad)
    for (auto& value : values) {
      SCOPED_TRACE(key + " " + value.dump());
      nlohmann::json state = state_;
      state["state"][key] = value;
      write(state);
      const std::string before = read("state.json"), log = read_file(folder / "run/log.jsonl", 1 << 20);
      const std::string error = resumed();
      EXPECT_TRUE(contains(error, "step-000004/state.json") && contains(error, "'" + key + "'")) << error;
      EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-000004", "step-000002"}));
      EXPECT_EQ(read("state.json"), before);
      EXPECT_EQ(read_file(folder / "run/log.jsonl", 1 << 20), log);
    }
  write(state_);
  EXPECT_EQ(resumed(), "");
}

// Damage outside of the state: an older checkpoint is used, and the damaged one is kept.
TEST_F(SavedState, OfAnotherStepOrUnknownFinitenessIsDamaged) {
  nlohmann::json state = state_;
  state["finite_weights"] = 1;
  write(state);
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(path("")); }), "finite_weights"));
  write(state_);
  std::filesystem::rename(path(""), folder / "run/checkpoints/step-000005");
  EXPECT_TRUE(contains(error_of([&] { Checkpoint::open(folder / "run/checkpoints/step-000005"); }),
                       "does not match the step in it (4)"));
  EXPECT_EQ(resumed(), "");
  EXPECT_TRUE(path_exists(folder / "run/checkpoints/.rejected-step-000005/model.safetensors"));
}
