// The samples of a run on several data folders.
#include "data/mixture.h"

#include "train/run_data.h"
#include "train/run_fixture.h"

namespace crest::test {

class MixedRun : public RunTest {};

TEST_F(MixedRun, SamplesAreThoseOfTheSources) {
  PrepareOptions p;
  p.inputs = {folder / "other.txt"}, p.out = folder / "other";
  std::ofstream(folder / "other.txt") << [] {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "another text " + std::to_string(i * i) + "\n";
    return text;
  }();
  prepare(p);
  TrainOptions o = options();
  o.data = {folder / "data:2", folder / "other:3"};
  std::vector<std::string> said;
  auto say = [&](const std::string& line) { said.push_back(line); };
  RunData data(o, say, say);
  data.make_rows();
  const int64_t seq = o.recipe.seq_length();
  const Dataset sources[] = {Dataset::open(folder / "data"), Dataset::open(folder / "other")};
  const Loader loaders[] = {{sources[0].train(), seq, o.seed}, {sources[1].train(), seq, o.seed}};
  const MixtureOrder order({0.4, 0.6});
  std::vector<int32_t> x(static_cast<size_t>(seq)), y(x), own_x(x), own_y(x);
  const SampleSource training = data.training();
  for (uint64_t g = 0; g < 3 * loaders[0].samples_per_epoch(); g += 7) {
    const MixtureOrder::Place place = order(g);
    training(g, x.data(), y.data(), nullptr);
    loaders[place.source].sample(place.index, own_x.data(), own_y.data());
    ASSERT_EQ(x, own_x) << g;
    ASSERT_EQ(y, own_y) << g;
  }
  const double all = double(loaders[0].samples_per_epoch() + loaders[1].samples_per_epoch());
  EXPECT_DOUBLE_EQ(data.epoch(o.recipe), all / double(o.recipe.batch));
  EXPECT_DOUBLE_EQ(data.epoch(o.recipe, 1), double(loaders[1].samples_per_epoch()) / (0.6 * double(o.recipe.batch)));
  EXPECT_NE(data.data().content_hash(), sources[0].info().content_hash);
  o.data = {folder / "data:3", folder / "other:2"};
  EXPECT_NE(open_data(o).content_hash(), data.data().content_hash()) << "other weights";
  o.data = {folder / "data:4", folder / "other:6"};
  EXPECT_EQ(open_data(o).content_hash(), data.data().content_hash()) << "equal shares";
}

}  // namespace crest::test
