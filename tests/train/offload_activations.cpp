// --offload activations gives the bits of a step with all activations on the device, with less
// device memory. Plans are exact, and no instruction uses an activation that travels.
#include <gtest/gtest.h>

#include "core/error.h"
#include "plan/addresses.h"
#include "program/op.h"
#include "train/state_bytes.h"

using namespace crest;
using crest::test::test_device;

namespace {

Recipe small(bool llama = false, const std::string& precision = "fp32") {
  Recipe r = tiny_recipe(llama);
  r.model.layers = 3, r.batch = 2;
  r.precision = precision, r.deterministic = true;
  return r;
}

Recipe offloaded(Recipe r, const char* what = "activations=all") {
  r.pass_settings["offload"] = what;
  return r;
}

CompiledSession session_of(const Recipe& r, const Device& device = test_device(2)) {
  return compile(r, device, session_programs(r, {.train = true, .update = true}));
}

const CompiledProgram& train_of(const CompiledSession& s) { return s.programs[size_t(training_step(s)[0].segment)]; }

std::vector<int> copies(const CompiledProgram& c, const std::string& op) {
  std::vector<int> list;
  for (int i = 0; i < int(c.program.code.size()); ++i)
    if (c.program.code[size_t(i)].op->name == op) list.push_back(i);
  return list;
}

// The bits of training, and copies in the Program of a micro step.
void expect_same_bits(const Recipe& r, const Recipe& moved, const Device& device = test_device(2)) {
  EXPECT_EQ(trained(r, device, 2), trained(moved, device, 2));
  const CompiledSession s = session_of(moved, device);
  EXPECT_GT(copies(train_of(s), "copy_out").size(), 2u);
  EXPECT_EQ(copies(train_of(s), "copy_out").size(), copies(train_of(s), "copy_in").size());
}

}  // namespace

TEST(OffloadActivations, GiveTheBitsOfActivationsOnTheDevice) {
  for (bool llama : {false, true})
    for (const char* precision : {"fp32", "bf16", "fp8"})
      for (const char* recompute : {"none", "pointwise", "selective", "layers=full:2+none"})
        for (const char* fusion : {"on", "off"}) {
          if (precision == std::string("fp8") && fusion == std::string("off")) continue;
          SCOPED_TRACE(testing::Message() << (llama ? "llama " : "gpt2 ") << precision << " recompute " << recompute
                                          << " fusion " << fusion);
          Recipe r = small(llama, precision);
          r.recompute = recompute, r.fusion = fusion;
          r.model.dropout = llama ? 0 : 0.1;
          expect_same_bits(r, offloaded(r));
        }
}

TEST(OffloadActivations, WithOtherSettings) {
  Recipe r = small(true, "bf16");
  r.grad_accumulation = 3;
  expect_same_bits(r, offloaded(r, "optimizer+activations=2"));
  r.attention = "naive", r.fusion = "off", r.policy = "autocast";
  expect_same_bits(r, offloaded(r));
  r = small(false, "fp16");
  r.pass_settings["loss-chunk"] = "10", r.pass_settings["packing"] = "documents";
  expect_same_bits(r, offloaded(r));
  r = small(true, "fp8");
  r.pass_settings["fp8-activations"] = "on";
  expect_same_bits(r, offloaded(r));
}

TEST(OffloadActivations, OnRanksWithAndWithoutShards) {
  for (const char* shard : {"none", "optimizer", "weights"}) {
    SCOPED_TRACE(shard);
    Recipe r = small(true, "bf16");
    r.data_parallel = 2, r.pass_settings["shard"] = shard, r.pass_settings["bucket"] = "20kB";
    r.grad_accumulation = shard == std::string("none") ? 1 : 2;
    expect_same_bits(r, offloaded(r));
  }
}

// Device memory loses what host memory has at the peak. Both are the executor's allocations.
TEST(OffloadActivations, ThePlanIsExactAndSmaller) {
  Recipe r = small(true);
  r.model.layers = 8, r.batch = 4, r.recompute = "none";
  const CompiledSession plain = session_of(r);
  Engine e = make_engine(offloaded(r));
  const CompiledSession& s = e.session();
  EXPECT_EQ(e.rank(0).held_bytes(), s.planned_bytes());
  EXPECT_EQ(e.rank(0).held_host_bytes(), s.host_bytes);
  const CompiledProgram& c = train_of(s);
  int64_t sent = 0;
  for (int i : copies(c, "copy_out")) {
    const Value& v = c.program.at(c.program.code[size_t(i)].out[0]);
    EXPECT_EQ(v.space, MemorySpace::host);
    EXPECT_EQ(address_of(s, c, c.program.code[size_t(i)].out[0]).arena, Address::Arena::host);
    sent += (v.bytes() + 255) / 256 * 256;
  }
  EXPECT_EQ(s.host_activations, sent) << "all are away at the turn";
  EXPECT_EQ(s.host_bytes, sent);
  EXPECT_EQ(total(s.by_category()), s.planned_bytes());
  const int64_t saved = plain.transient_bytes - s.transient_bytes;
  EXPECT_GT(saved, sent / 2);
  EXPECT_LE(saved, sent);
  for (const char* less : {"activations=2", "activations=4"}) {
    const CompiledSession part = session_of(offloaded(r, less));
    EXPECT_LT(part.host_bytes, s.host_bytes);
    EXPECT_GT(part.transient_bytes, s.transient_bytes);
    EXPECT_LT(part.transient_bytes, plain.transient_bytes);
  }
}

// A copy leaves after its value is made, returns after it has left, and is read after it has
// returned. Computation does not wait for what leaves, and what returns does not wait for its
// reader. The plan has no wait too many: without any one of them, some memory is used too early.
TEST(OffloadActivations, NothingIsUsedWhileItTravels) {
  Recipe r = small(true);
  r.model.layers = 6, r.recompute = "none";
  const CompiledSession s = session_of(offloaded(r));
  const CompiledProgram& c = train_of(s);
  const Program& p = c.program;
  HappensBefore ordered(p, c.waits);
  const std::vector<int> producers = p.producers();
  const std::vector<std::vector<int>> readers = p.consumers();
  int beside = 0, ahead = 0;
  for (int i : copies(c, "copy_out")) {
    const Instr& out = p.code[size_t(i)];
    EXPECT_EQ(out.stream, Stream::copy_back);
    EXPECT_TRUE(ordered(producers[size_t(out.in[0])], i));
    for (int back : readers[size_t(out.out[0])]) {
      const Instr& in = p.code[size_t(back)];
      EXPECT_EQ(in.stream, Stream::copy);
      EXPECT_TRUE(ordered(i, back));
      for (int user : readers[size_t(in.out[0])]) EXPECT_TRUE(ordered(back, user));
      const int first = readers[size_t(in.out[0])].front();
      ahead += first > back + 1 && !ordered(first - 1, back);
    }
    for (int other : readers[size_t(out.in[0])]) {
      EXPECT_EQ(p.code[size_t(other)].phase, Phase::forward) << "it is in host memory by then";
    }
    beside += !ordered(i, i + 1);
  }
  const int all = int(copies(c, "copy_out").size());
  EXPECT_GT(beside, all / 2);
  EXPECT_GT(ahead, all / 2);
  const Accesses accesses = accesses_by_address(s, c);
  int waits = 0;
  for (size_t i = 0; i < c.waits.size(); ++i)
    for (size_t k = 0; k < c.waits[i].size(); ++k) {
      Waits fewer = c.waits;
      fewer[i].erase(fewer[i].begin() + ptrdiff_t(k));
      EXPECT_THROW(verify_waits(p, accesses, fewer), Error) << "instruction " << i;
      ++waits;
    }
  EXPECT_GT(waits, 2 * all);
}

// The kernels of a GPU, or of its emulation.
TEST(OffloadActivations, OnAGpu) {
  Recipe r = small(true, "bf16");
  r.model.layers = 2, r.model.width = 16, r.model.heads = r.model.kv_heads = 1, r.model.ff = 32, r.seq = 5;
  Device gpu = test_device(2);
#if !CREST_HAVE_CUDA
  gpu = crest::test::emulated_gpu(2);
  gpu.sm = 80;  // without kernels slow to emulate
#endif
  expect_same_bits(r, offloaded(r), gpu);
}

TEST(OffloadActivations, RefusePipelineStages) {
  Recipe r = offloaded(small(), "activations");
  r.ranks = 2, r.mesh = Mesh{{Axis::pipeline, 2}}, r.grad_accumulation = 2;
  try {
    session_of(r);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("in a pipeline"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("--offload activations"), std::string::npos) << e.what();
  }
}
