// Instructions on random streams give the bits of one stream: launched one by one, as a captured
// graph, and while they are timed.
#include <gtest/gtest.h>

#include "plan/streams.h"
#include "train/harness.h"

using namespace crest;
using namespace crest::test;

namespace {

Recipe recipe(bool llama, const char* precision) {
  Recipe r = tiny_recipe(llama);
  r.precision = precision, r.deterministic = true;
  return r;
}

Engine engine_of(const Recipe& r, int spread) {
  SessionUse use;
  use.train = use.update = use.validation = true;
  CompiledSession s = compile(r, test_device(2), session_programs(r, use));
  if (spread >= 0) use_random_streams(s, uint64_t(spread));
  Engine e(std::move(s));
  e.initialize_weights(3);
  return e;
}

struct StreamsEnded {
  std::vector<double> losses;
  std::vector<std::vector<float>> weights;
  double validation = 0;
  bool operator==(const StreamsEnded&) const = default;
};

// traced: the step with timed instructions, -1 for none.
StreamsEnded run_streams(const Recipe& r, int spread, int traced = -1, std::vector<StepTrace>* traces = nullptr) {
  Engine e = engine_of(r, spread);
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
  StreamsEnded end;
  for (int s = 0; s < 5; ++s) end.losses.push_back(e.step(s, 1e-2, 11, source, s == traced ? traces : nullptr).loss);
  for (auto& p : parameters(e.rank(0))) p.get(end.weights.emplace_back(size_t(p.numel())).data());
  end.validation = e.validate(2, source);
  return end;
}

}  // namespace

TEST(Streams, RandomStreamsGiveTheSameBits) {
  for (bool llama : {false, true})
    for (const char* precision : {"fp32", "bf16"})
      for (const char* graphs : {"on", "off"}) {
        SCOPED_TRACE(testing::Message() << llama << " " << precision << " graphs " << graphs);
        Recipe r = recipe(llama, precision);
        r.graphs = graphs;
        StreamsEnded one = run_streams(r, -1);
        for (int spread = 0; spread < 4; ++spread) EXPECT_TRUE(run_streams(r, spread) == one) << "spread " << spread;
      }
}

// The time of an instruction belongs to its stream. Instructions of a stream follow each other, and
// no time is negative on any device.
TEST(Streams, TimesAreOfTheirOwnStream) {
  Recipe r = recipe(false, "fp32");
  StreamsEnded one = run_streams(r, -1);
  for (int spread = -1; spread < 3; ++spread) {
    SCOPED_TRACE(testing::Message() << "spread " << spread);
    std::vector<StepTrace> traces;
    EXPECT_TRUE(run_streams(r, spread, 2, &traces) == one);
    Engine e = engine_of(r, spread);
    const CompiledSession& s = e.session();
    std::vector<SegmentCall> calls = training_step(s);
    ASSERT_EQ(traces.size(), calls.size());
    for (size_t c = 0; c < calls.size(); ++c) {
      const Program& p = s.programs[size_t(calls[c].segment)].program;
      const StepTrace& t = traces[c];
      ASSERT_EQ(t.seconds.size(), p.code.size());
      // Clocks are added to a time since the machine's start; events resolve half a microsecond.
      constexpr double tolerance = 2e-6;
      std::array<double, stream_count> before;
      before.fill(t.start);
      double end = t.start, sum = 0;
      for (size_t i = 0; i < p.code.size(); ++i) {
        double& last = before[size_t(p.code[i].stream)];
        EXPECT_GE(t.seconds[i], 0) << i;
        EXPECT_GE(t.starts[i], last - tolerance) << i;
        last = t.starts[i] + t.seconds[i];
        end = std::max(end, last), sum += t.seconds[i];
      }
      EXPECT_LE(end, t.start + t.total + tolerance);
      EXPECT_GT(sum, 0);
      if (spread < 0) {
        EXPECT_NEAR(sum, t.total, 0.02 * t.total + 1e-5);
      }
    }
  }
}
