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

CompiledSession session_of(const Recipe& r, const Device& device) {
  SessionUse use;
  use.train = use.update = use.validation = true;
  return compile(r, device, session_programs(r, use));
}

CompiledSession spread_session(const Recipe& r, int spread) {
  CompiledSession s = session_of(r, test_device(2));
  if (spread >= 0) use_random_streams(s, uint64_t(spread));
  return s;
}

Engine engine_of(CompiledSession s) {
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
StreamsEnded run_session(CompiledSession session, int steps = 5, int traced = -1,
                         std::vector<StepTrace>* traces = nullptr) {
  Engine e = engine_of(std::move(session));
  const Recipe& r = e.session().recipe;
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
  StreamsEnded end;
  for (int s = 0; s < steps; ++s)
    end.losses.push_back(e.step(s, 1e-2, 11, source, s == traced ? traces : nullptr).loss);
  for (auto& p : parameters(e.rank(0))) p.get(end.weights.emplace_back(size_t(p.numel())).data());
  end.validation = e.validate(2, source);
  return end;
}
StreamsEnded run_streams(const Recipe& r, int spread, int traced = -1, std::vector<StepTrace>* traces = nullptr) {
  return run_session(spread_session(r, spread), 5, traced, traces);
}

}  // namespace

TEST(Streams, RandomStreamsGiveTheSameBits) {
  for (bool llama : {false, true})
    for (const char* precision : {"fp32", "bf16"})
      for (const char* graphs : {"on", "off"}) {
        if (test_device(2).kind == "cpu" && std::string_view(graphs) == "off") continue;  // the same there
        SCOPED_TRACE(testing::Message() << llama << " " << precision << " graphs " << graphs);
        Recipe r = recipe(llama, precision);
        r.graphs = graphs;
        StreamsEnded one = run_streams(r, -1);
        for (int spread = 0; spread < 4; ++spread) EXPECT_TRUE(run_streams(r, spread) == one) << "spread " << spread;
      }
}

// With gradients of parameters on a stream of their own, any order allowed by the waits gives the
// bits of one stream. Other orders do not.
TEST(Streams, GradientsOnTheirOwnStreamGiveTheSameBits) {
  Device gpu = test_device(2);
  if (gpu.kind == "cpu") gpu = emulated_gpu(2);
  Recipe r = recipe(false, "bf16");
  r.batch = 1, r.seq = 8, r.grad_accumulation = 2;
  r.pass_settings["gradient-overlap"] = "off";
  const StreamsEnded one = run_session(session_of(r, gpu), 2);
  r.pass_settings["gradient-overlap"] = "on";
  const CompiledSession s = session_of(r, gpu);
  for (auto& c : s.programs) EXPECT_EQ(has_several_streams(c.program), c.spec.kind == ProgramKind::train);
  EXPECT_TRUE(run_session(s, 2) == one);
  enum Order { late, early, too_early };
  for (Order order : {late, early, too_early}) {
    CompiledSession ordered = s;
    for (auto& c : ordered.programs)
      if (order == too_early && !c.waits.empty()) c.waits.assign(c.waits.size(), {});
    interleave(ordered, [&](const std::vector<int>& ready) { return order == late ? 0 : ready.size() - 1; });
    for (auto& c : ordered.programs) {
      c.waits.clear();
      for (auto& instr : c.program.code) instr.stream = Stream::compute;
    }
    EXPECT_EQ(run_session(ordered, 2) == one, order != too_early) << "order " << order;
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
    Engine e = engine_of(spread_session(r, spread));
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
