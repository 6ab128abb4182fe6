// The way ranks sum gradients does not change the result: every value of --reduce gives the same
// bits, with buckets of any size.
#include <gtest/gtest.h>

#include "core/error.h"
#include "program/op.h"
#include "train/harness.h"

using namespace crest;

namespace {

struct Ended {
  std::vector<double> losses, norms;
  std::vector<std::vector<std::vector<float>>> weights;  // by rank and parameter
  double validation = 0;
  bool operator==(const Ended&) const = default;
};

Ended run(const Recipe& r, int steps = 2, const Device& device = crest::test::test_device(2)) {
  Engine e = make_engine(r, device);
  SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
  Ended end;
  for (int s = 0; s < steps; ++s) {
    StepResult result = e.step(s, 1e-2, 11, source);
    end.losses.push_back(result.loss), end.norms.push_back(result.grad_norm);
  }
  for (int rank = 0; rank < r.data_parallel; ++rank) {
    auto& all = end.weights.emplace_back();
    for (auto& p : parameters(e.rank(rank))) p.get(all.emplace_back(size_t(p.numel())).data());
  }
  end.validation = e.validate(1, source);
  return end;
}

Recipe ranks(int n) {
  Recipe r = tiny_recipe();
  r.batch = 1, r.seq = 9, r.data_parallel = n;
  return r;
}

Recipe with(Recipe r, const char* reduce, const char* bucket = "4kB") {
  r.pass_settings["reduce"] = reduce, r.pass_settings["bucket"] = bucket;
  return r;
}

int64_t collectives(const Recipe& r, const char* program = "train") {
  SessionUse use;
  use.train = use.update = true;
  CompiledSession s = compile(r, crest::test::test_device(2), session_programs(r, use));
  auto& code = s.programs[size_t(s.find(program))].program.code;
  return std::count_if(code.begin(), code.end(), [](auto& i) { return i.op->op_class == OpClass::communication; });
}

}  // namespace

TEST(Reductions, EveryRungGivesTheSameBits) {
  std::vector<Recipe> recipes = {ranks(2), ranks(3), ranks(2), ranks(3)};
  recipes[0].grad_accumulation = 2, recipes[0].optimizer = "muon";
  recipes[1].precision = "bf16", recipes[1].grad_dtype = "bf16", recipes[1].recompute = "full";
  recipes[2].precision = "fp16", recipes[2].fusion = "off", recipes[2].optimizer = "adamw-unfused";
  recipes[3].optimizer = "adafactor";
  for (const Recipe& r : recipes) {
    SCOPED_TRACE(r.optimizer + " " + r.precision + " on " + std::to_string(r.data_parallel));
    Ended each = run(with(r, "each"));
    for (auto& of_rank : each.weights) EXPECT_TRUE(of_rank == each.weights[0]) << "ranks have different weights";
    for (const char* reduce : {"flat", "overlap", "bucket"}) EXPECT_TRUE(run(with(r, reduce)) == each) << reduce;
  }
}

// --deterministic adds the gradients of micro steps in the order of ranks.
TEST(Reductions, MicroStepsGiveTheBitsOfRanksWhereTheyAreDeterministic) {
  for (const char* precision : {"fp32", "bf16"})
    for (int n : {2, 3, 5}) {
      SCOPED_TRACE(std::string(precision) + " " + std::to_string(n));
      Recipe of_ranks = ranks(n);
      of_ranks.precision = precision, of_ranks.deterministic = true, of_ranks.model.dropout = 0.1;
      Recipe micro_steps = of_ranks;
      micro_steps.data_parallel = 1, micro_steps.grad_accumulation = n;
      Ended a = run(of_ranks), b = run(micro_steps);
      EXPECT_EQ(a.losses, b.losses);
      EXPECT_EQ(a.norms, b.norms);
      EXPECT_TRUE(a.weights[0] == b.weights[0]);
    }
}

TEST(Reductions, ManyDeterministicMicroStepsTakeNoMoreMemory) {
  auto bytes = [](int64_t micro_steps) {
    Recipe r = ranks(1);
    r.deterministic = true, r.grad_accumulation = micro_steps;
    SessionUse use;
    use.train = use.update = true;
    return compile(r, crest::test::test_device(2), session_programs(r, use)).planned_bytes();
  };
  EXPECT_LE(bytes(1'000'000), bytes(3));
}

TEST(Reductions, BucketsOfAnySizeGiveTheSameBits) {
  Recipe r = ranks(3);
  Ended each = run(with(r, "each"));
  int64_t flat = collectives(with(r, "flat")), one_by_one = collectives(with(r, "overlap"));
  EXPECT_EQ(flat, 3) << "matrices, everything else, the loss";
  EXPECT_GT(one_by_one, 20);
  int64_t before = one_by_one + 1;
  for (const char* bucket : {"1B", "3kB", "20kB", "1GiB"}) {
    SCOPED_TRACE(bucket);
    int64_t number = collectives(with(r, "bucket", bucket));
    EXPECT_LT(number, before);
    before = number;
    EXPECT_TRUE(run(with(r, "bucket", bucket)) == each);
  }
  EXPECT_EQ(before, flat) << "a bucket that is never full holds a group";
  EXPECT_EQ(collectives(with(r, "bucket", "1B")), one_by_one) << "a bucket that one parameter fills";
}

// Gradients in bf16 on the wire: close to fp32, the same on all ranks and for every value.
TEST(Reductions, Bf16OnTheWire) {
  Recipe r = ranks(2), b = r;
  b.pass_settings["comm-dtype"] = "bf16";
  Ended exact = run(with(r, "flat")), each = run(with(b, "each"));
  EXPECT_TRUE(each.weights[0] == each.weights[1]);
  EXPECT_TRUE(each.losses[0] == exact.losses[0]) << "the loss is never rounded";
  EXPECT_FALSE(each.norms == exact.norms);
  for (size_t s = 0; s < each.norms.size(); ++s) EXPECT_NEAR(each.norms[s], exact.norms[s], 0x1p-7 * exact.norms[s]);
  for (const char* reduce : {"flat", "overlap", "bucket"}) EXPECT_TRUE(run(with(b, reduce)) == each) << reduce;
}

// The plan has the 16-bit copies, and they are half of the largest collective.
TEST(Reductions, ThePlanShowsTheBuffers) {
  Recipe r = with(ranks(2), "flat");
  SessionUse use;
  use.train = use.update = true;
  auto buffers = [&] {
    CompiledSession s = compile(r, crest::test::test_device(2), session_programs(r, use));
    int64_t bytes = 0;
    for (auto& b : s.programs[size_t(s.find("train"))].memory.blocks)
      if (b.category == Category::comm_buffers) bytes = std::max(bytes, b.bytes);
    return bytes;
  };
  EXPECT_EQ(buffers(), 0);
  r.pass_settings["comm-dtype"] = "bf16";
  int64_t matrices = 0;
  CompiledSession s = compile(r, crest::test::test_device(2), session_programs(r, use));
  const Program& p = s.programs[0].program;
  for (auto& v : p.values)
    if (v.name == "gradients.decay") matrices = v.numel();
  EXPECT_NEAR(double(buffers()), double(2 * matrices), 512);
}

TEST(Reductions, OverlappedOnesComeBeforeTheEndOfTheBackwardPass) {
  for (const char* reduce : {"each", "flat", "overlap", "bucket"}) {
    SCOPED_TRACE(reduce);
    Recipe r = with(ranks(2), reduce);
    SessionUse use;
    use.train = use.update = true;
    CompiledSession s = compile(r, crest::test::test_device(2), session_programs(r, use));
    const CompiledProgram& c = s.programs[size_t(s.find("train"))];
    size_t n = c.program.code.size(), first = n, last_compute = 0;
    for (size_t i = 0; i < n; ++i)
      if (c.program.code[i].op->op_class != OpClass::communication)
        last_compute = i;
      else if (c.program.at(c.program.code[i].in[0]).role == Role::gradient)
        first = std::min(first, i);
    bool overlapped = reduce == std::string("overlap") || reduce == std::string("bucket");
    EXPECT_EQ(first < last_compute, overlapped);
    EXPECT_EQ(!c.waits.empty(), overlapped);
  }
}

TEST(Reductions, BadSizesAreRefused) {
  for (const char* bucket : {"0", "many", "-1MB", "25 parsecs"}) try {
      collectives(with(ranks(2), "bucket", bucket));
      ADD_FAILURE() << bucket;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::usage) << bucket;
      EXPECT_EQ(e.where(), "--bucket");
    }
}

// The kernels of a GPU, also with rounding of sent values.
TEST(Reductions, EveryRungGivesTheSameBitsOnAGpu) {
  Device gpu = crest::test::emulated_gpu(2);
  gpu.sm = 80;  // without kernels slow to emulate
  Recipe r = ranks(2);
  r.model.layers = 1, r.model.width = 16, r.model.heads = r.model.kv_heads = 1, r.model.ff = 32, r.seq = 5;
  r.precision = "bf16", r.deterministic = true, r.pass_settings["comm-dtype"] = "bf16";
  EXPECT_TRUE(run(with(r, "bucket"), 1, gpu) == run(with(r, "flat"), 1, gpu));
}
