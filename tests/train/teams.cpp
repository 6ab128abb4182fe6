// Later steps start no threads. If a team is smaller than the previous one, libgomp ends threads,
// and the next team starts them again.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "train/harness.h"

using namespace crest;

namespace {

std::set<std::string> threads_of_process() {
  std::set<std::string> ids;
  for (auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ids.insert(entry.path().filename());
  return ids;
}

}  // namespace

TEST(Teams, StepsKeepTheirThreads) {
  Recipe r = tiny_recipe();
  // Work of one to thirty grains. If each thread had at least a grain, some of this work would use
  // fewer than all threads.
  r.model.layers = 1, r.model.width = 128, r.model.heads = r.model.kv_heads = 4, r.model.head_dim = 32;
  r.model.ff = 512, r.model.vocab = 1024, r.model.context = 64;
  r.batch = 4, r.seq = 64;
  Engine e = make_engine(r, crest::test::this_cpu(6));
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
  e.step(0, 1e-3, 11, source);
  std::set<std::string> before = threads_of_process();
  for (int step = 1; step < 3; ++step) e.step(step, 1e-3, 11, source);
  EXPECT_GE(before.size(), 6u);
  EXPECT_EQ(threads_of_process(), before);
}
