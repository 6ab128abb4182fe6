// --shard gives the bits of plain data parallelism, with a shard of the optimizer's state, of
// gradients and of weights on each rank. Checkpoints are the same.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "memory_folder.h"
#include "passes/rewrite.h"
#include "program/op.h"
#include "train/state_bytes.h"

using namespace crest;

namespace {

Recipe on_ranks(int n) {
  Recipe r = tiny_recipe();
  r.batch = 1, r.seq = 9, r.data_parallel = n;
  return r;
}

Recipe sharded(Recipe r, const std::string& level = "optimizer") {
  r.pass_settings["shard"] = level;
  if (level != "optimizer") r.pass_settings["bucket"] = "20kB";  // several groups
  return r;
}

std::vector<Recipe> shard_recipes() {
  std::vector<Recipe> list;
  for (const char* optimizer :
       {"adamw", "adamw-8bit", "adamw-fp8", "sgd", "lion", "adamw-bf16", "adamw-bf16-kahan", "adamw-bf16-stochastic"}) {
    Recipe r = on_ranks(list.size() % 2 ? 3 : 2);
    r.optimizer = optimizer;
    r.precision = list.empty() ? "fp32" : "bf16";
    list.push_back(r);
  }
  Recipe r = on_ranks(3);
  r.grad_accumulation = 2, r.precision = "bf16", r.policy = "autocast", r.clip = 0.01;
  list.push_back(r);
  list.back().pass_settings["packing"] = "documents";
  r = on_ranks(2);
  r.precision = "fp16", r.loss_scale = 1e30;  // overflows: steps are skipped
  list.push_back(r);
  r = on_ranks(2);
  r.precision = "bf16", r.pass_settings["master-weights"] = "fp32", r.grad_dtype = "bf16", r.clip = 0;
  list.push_back(r);
  return list;
}

std::string shard_name(const Recipe& r) {
  return r.optimizer + " " + r.precision + " on " + std::to_string(r.data_parallel);
}

}  // namespace

TEST(Sharding, GivesTheBitsOfPlainDataParallelism) {
  for (const Recipe& r : shard_recipes()) {
    SCOPED_TRACE(shard_name(r));
    auto plain = trained(r), shards = trained(sharded(r));
    ASSERT_EQ(plain.size(), shards.size());
    int different = 0;
    for (size_t i = 0; i < plain.size(); ++i) different += plain[i] != shards[i];
    EXPECT_EQ(different, 0) << "of " << plain.size() << " tensors";
  }
}

// Gradients are summed and weights gathered bucket by bucket. Stochastic rounding draws other
// numbers in other groups.
TEST(Sharding, GradientsAndWeightsGiveTheBitsOfPlainDataParallelism) {
  for (const Recipe& r : shard_recipes()) {
    if (r.grad_accumulation > 1 || r.optimizer == "adamw-bf16-stochastic") continue;
    auto plain = trained(r);
    for (const char* level : {"gradients", "weights"}) {
      SCOPED_TRACE(shard_name(r) + ", " + level);
      auto shards = trained(sharded(r, level));
      ASSERT_EQ(plain.size(), shards.size());
      int different = 0;
      for (size_t i = 0; i < plain.size(); ++i) different += plain[i] != shards[i];
      EXPECT_EQ(different, 0) << "of " << plain.size() << " tensors";
    }
  }
}

// The weights updated by the others arrive in the next forward pass, and in the Program of the
// validation.
TEST(Sharding, GathersInTheNextForwardPass) {
  for (int64_t micro_steps : {1, 2}) {
    Recipe r = on_ranks(3);
    r.grad_accumulation = micro_steps, r.precision = "bf16", r.clip = 0;
    Recipe ahead = sharded(r);
    ahead.pass_settings["reduce"] = "bucket", ahead.pass_settings["bucket"] = "20kB",
    ahead.pass_settings["gather"] = "forward";
    auto plain = trained(r), got = trained(ahead);
    plain.back() = got.back();
    EXPECT_TRUE(plain == got) << micro_steps << " micro steps";
    Engine a = make_engine(r), b = make_engine(ahead);
    steps(a, 0, 2), steps(b, 0, 2);
    SampleSource source = [&](uint64_t g, int32_t* x, int32_t* y, int32_t*) { synthetic(r, g, x, y); };
    EXPECT_EQ(a.validate(2, source), b.validate(2, source));
    for (auto& c : b.session().programs) {
      auto gathers = std::count_if(c.program.code.begin(), c.program.code.end(),
                                   [](auto& i) { return i.op->name == std::string("all_gather"); });
      bool first = c.spec.kind == ProgramKind::validation || (c.spec.kind == ProgramKind::train && c.spec.first);
      EXPECT_EQ(gathers > 1, first) << c.spec.name;
    }
  }
}

// With several micro steps the sum over the ranks comes first: another order, the same for both.
TEST(Sharding, GradientsAccumulateAsShards) {
  for (int64_t micro_steps : {2, 3}) {
    SCOPED_TRACE(micro_steps);
    Recipe r = on_ranks(2);
    r.grad_accumulation = micro_steps, r.precision = "bf16", r.recompute = "full";
    auto weights = [&](const Recipe& recipe) {
      Engine e = make_engine(recipe, crest::test::test_device(2));
      steps(e, 0, 3);
      std::vector<float> all;
      with_parameters(e, [&](const ParameterRef& p) {
        all.resize(all.size() + size_t(p.numel()));
        p.get(all.data() + all.size() - size_t(p.numel()));
      });
      return all;
    };
    std::vector<float> plain = weights(r), of_gradients = weights(sharded(r, "gradients"));
    EXPECT_TRUE(of_gradients == weights(sharded(r, "weights")));
    ASSERT_EQ(plain.size(), of_gradients.size());
    double squares = 0, of_all = 0;
    for (size_t i = 0; i < plain.size(); ++i)
      squares += std::pow(plain[i] - of_gradients[i], 2), of_all += std::pow(plain[i], 2);
    EXPECT_LT(std::sqrt(squares / of_all), 1e-2);
  }
}

// The memory of a rank between steps, in bytes a parameter, with bf16 weights, fp32 gradients and
// AdamW's split master: 16, 11, 9 and 8 on two ranks. Whole gradients and weights in use come on
// top, as comm_buffers.
TEST(Sharding, StateOfARankIsExact) {
  Recipe r;
  r.model = load_model_config("gpt2-1558M");
  r.precision = "bf16", r.batch = 1, r.seq = 64, r.ranks = 2;
  SessionUse use;
  use.train = use.update = true;
  const double gib = 1 << 30;
  for (auto& [level, expected] :
       {std::pair{"none", 23.2}, {"optimizer", 16.0}, {"gradients", 13.1}, {"weights", 11.6}}) {
    Recipe s = r;
    s.pass_settings["shard"] = level;
    CompiledSession c = compile(s, crest::test::test_device(2), session_programs(s, use), {.verify = false});
    double state = 0, gradients = 0;
    for (auto& b : c.persistent)
      if (b.category == Category::weights || b.category == Category::optimizer_state) state += double(b.bytes);
    for (auto& b : c.gradients) {
      bool shard = b.name.starts_with("shard_");
      if (shard == (std::string(level) == "gradients" || std::string(level) == "weights")) gradients += double(b.bytes);
    }
    EXPECT_NEAR((state + gradients) / gib, expected, 0.06) << level;
    if (std::string(level) != "gradients" && std::string(level) != "weights") continue;
    double live = double(c.by_category()[size_t(Category::comm_buffers)]) / gib;
    EXPECT_GT(live, 0.3) << "the tied embedding's gradient alone, in fp32";
    EXPECT_LT(live, std::string(level) == "gradients" ? 0.6 : 0.9) << level;
  }
}

// Buckets are separate groups, and overlap with other work. Without clipping, the order of the
// norm's sum has no effect.
TEST(Sharding, BucketsGiveTheSameWeights) {
  for (const char* optimizer : {"adamw", "adamw-8bit"}) {
    SCOPED_TRACE(optimizer);
    int micro_steps = std::string(optimizer) == "adamw" ? 1 : 2;
    Recipe r = on_ranks(micro_steps + 1);
    r.optimizer = optimizer, r.precision = "bf16", r.clip = 0, r.grad_accumulation = micro_steps;
    Recipe buckets = sharded(r);
    buckets.pass_settings["reduce"] = "bucket", buckets.pass_settings["bucket"] = "20kB";
    auto flat = trained(r), got = trained(buckets);
    flat.back() = got.back();  // the norm may differ in its last bit
    EXPECT_TRUE(got == flat);
    SessionUse use;
    use.train = use.update = true;
    CompiledSession s = compile(buckets, crest::test::test_device(2), session_programs(buckets, use));
    int gathers = 0, scatters = 0;
    for (auto& c : s.programs)
      for (auto& instr : c.program.code) {
        std::string op = instr.op->name;
        gathers += op == "all_gather" && instr.stream == Stream::comm;
        scatters += op == "reduce_scatter" && instr.stream == Stream::comm;
      }
    EXPECT_GT(gathers, 2);
    EXPECT_EQ(gathers, scatters);
  }
}

// A bucket for each tensor, some of them filled without padding.
TEST(Sharding, ABucketMayBeOneTensor) {
  Recipe r = on_ranks(2);
  r.model.ff = 128, r.clip = 0;
  auto flat = trained(r);
  for (const char* level : {"optimizer", "gradients", "weights"}) {
    SCOPED_TRACE(level);
    Recipe each = sharded(r, level);
    each.pass_settings["reduce"] = "bucket", each.pass_settings["bucket"] = "1";
    auto got = trained(each);
    flat.back() = got.back();  // the norm may differ in its last bit
    EXPECT_TRUE(got == flat);
  }
}

// The kernels of a GPU sum and update a shard like a whole group. The gradient norm is the sum of
// the ranks' parts.
TEST(Sharding, GivesTheBitsOfPlainDataParallelismOnAGpu) {
  Device gpu = crest::test::emulated_gpu(2);
  gpu.sm = 80;  // without kernels slow to emulate
  Recipe r = on_ranks(2);
  r.model.layers = 1, r.model.width = 16, r.model.heads = r.model.kv_heads = 1, r.model.ff = 32, r.seq = 5;
  r.optimizer = "adamw-bf16-stochastic", r.precision = "bf16", r.deterministic = true;
  EXPECT_TRUE(trained(r, gpu, 2) == trained(sharded(r), gpu, 2));
  r.optimizer = "adamw";
  auto plain = trained(r, gpu, 2), weights = trained(sharded(r, "weights"), gpu, 2);
  weights.back() = plain.back();
  EXPECT_TRUE(plain == weights);
}

// The plan has the shard of a rank, to the padding of a group.
TEST(Sharding, EachRankPlansItsShareOfTheState) {
  SessionUse use;
  use.train = use.update = true;
  for (int n : {2, 3, 4}) {
    auto state = [&](const Recipe& r) {
      return compile(r, crest::test::test_device(2), session_programs(r, use))
          .by_category()[size_t(Category::optimizer_state)];
    };
    int64_t whole = state(on_ranks(n)), shard = state(sharded(on_ranks(n)));
    EXPECT_NEAR(double(shard), double(whole) / n, 5 * 256) << n << " ranks";
    Recipe r = sharded(on_ranks(n));
    EXPECT_EQ(make_engine(r).rank(0).held_bytes(),
              compile(r, crest::test::test_device(2),
                      session_programs(r, {.train = true, .update = true, .validation = true}))
                  .planned_bytes());
  }
}

// A checkpoint of shards equals one of whole states, and continues with any setting.
TEST(Sharding, CheckpointsDoNotShowIt) {
  for (const char* optimizer : {"adamw", "adamw-8bit", "adamw-fp8", "muon"}) {
    SCOPED_TRACE(optimizer);
    Recipe r = on_ranks(2);
    r.optimizer = optimizer, r.precision = "bf16";
    if (r.optimizer == "muon") r.clip = 0;  // its groups are others with shards, and sum the norm in another order
    Recipe other = r;                       // the same global batch on one rank
    other.data_parallel = 1, other.grad_accumulation = 2;
    MemoryFolder plain_folder, shared_folder;
    Engine plain = make_engine(r), shards = make_engine(sharded(r));
    steps(plain, 0, 3), steps(shards, 0, 3);
    save(plain, plain_folder.path()), save(shards, shared_folder.path());
    EXPECT_EQ(hashes_of(plain_folder.path()), hashes_of(shared_folder.path()));
    auto expected = bytes_of(plain);
    Engine weights = make_engine(sharded(r, "weights"));
    MemoryFolder weights_folder;
    steps(weights, 0, 3);
    save(weights, weights_folder.path());
    EXPECT_EQ(hashes_of(plain_folder.path()), hashes_of(weights_folder.path()));
    for (const Recipe& next : {r, sharded(r), sharded(r, "gradients"), sharded(r, "weights"), other}) {
      Engine e = make_engine(next);
      restore(e, Checkpoint::open(shared_folder.path() + "/step-000003"));
      auto got = bytes_of(e);
      expected.back() = got.back();  // the norm of the last step is not restored
      EXPECT_TRUE(got == expected) << shard_name(next);
    }
    Engine again = make_engine(sharded(r));
    restore(again, Checkpoint::open(plain_folder.path() + "/step-000003"));
    steps(plain, 3, 5), steps(shards, 3, 5), steps(again, 3, 5);
    EXPECT_TRUE(bytes_of(again) == bytes_of(shards));
    if (r.optimizer == "muon")
      expect_same_but_norm(bytes_of(shards), bytes_of(plain));
    else
      EXPECT_TRUE(bytes_of(plain) == bytes_of(shards));
  }
}

// A rank updates whole matrices, as many of each role as the others: with three ranks and two
// layers, one rank has none. Without clipping, the order of the norm's sum has no effect.
TEST(Sharding, RanksOwnTheMatricesOfMuon) {
  for (int ranks : {2, 3})
    for (const char* level : {"optimizer", "gradients", "weights", "forward"}) {
      SCOPED_TRACE(std::to_string(ranks) + " " + level);
      Recipe r = on_ranks(ranks);
      r.model = tiny_model(ranks == 3);
      r.optimizer = "muon", r.clip = 0, r.precision = ranks == 2 ? "fp32" : "bf16";
      if (level == std::string("optimizer")) r.grad_accumulation = 2;
      const bool forward = level == std::string("forward");
      Recipe owned = sharded(r, forward ? "optimizer" : level);
      if (forward)
        owned.pass_settings["gather"] = "forward", owned.pass_settings["reduce"] = "bucket",
        owned.pass_settings["bucket"] = "20kB";
      expect_same_but_norm(trained(owned), trained(r));
    }
}

// Each rank has half of the products and of the state, and the plan says so.
TEST(Sharding, EachRankPlansItsMatricesOfMuon) {
  SessionUse use;
  use.train = use.update = true;
  auto planned = [&](const Recipe& r) {
    CompiledSession s = compile(r, crest::test::test_device(2), session_programs(r, use));
    const Program& p = s.programs[size_t(s.find("update"))].program;
    const auto products = std::count_if(p.code.begin(), p.code.end(), [](auto& i) { return is(i, "matmul"); });
    return std::pair(int64_t(products), s.by_category()[size_t(Category::optimizer_state)]);
  };
  Recipe r = on_ranks(2);
  r.optimizer = "muon";
  const auto [products, state] = planned(r);
  const auto [own_products, own_state] = planned(sharded(r));
  EXPECT_EQ(products, 2 * own_products);
  EXPECT_NEAR(double(own_state), double(state) / 2, 9 * 256);
  EXPECT_EQ(make_engine(sharded(r)).rank(0).held_bytes(),
            compile(sharded(r), crest::test::test_device(2),
                    session_programs(sharded(r), {.train = true, .update = true, .validation = true}))
                .planned_bytes());
}

// Rank 0 has few whole tensors at a time, so the plan counts only its own parts.
TEST(Sharding, WholeTensorsExistOnlyWhileTheyAreRead) {
  Engine e = make_engine(sharded(on_ranks(2), "weights"));
  steps(e, 0, 1);
  ShardedStates& sharded = e.rank(0).sharded();
  auto holds = [&](size_t i) {
    std::vector<float> values = sharded.whole(i).floats();
    return std::any_of(values.begin(), values.end(), [](float x) { return x != 0; });
  };
  ASSERT_FALSE(sharded.tensors().empty());
  e.with_states([&] {
    for (size_t i = 0; i < sharded.tensors().size(); ++i) {
      const auto& t = sharded.tensors()[i];
      EXPECT_FALSE(holds(i));
      sharded.read(t.parameter, t.state, [&] { EXPECT_TRUE(holds(i)) << t.parameter << " " << t.state; });
      EXPECT_FALSE(holds(i));
    }
  });
  EXPECT_THROW(sharded.read(0, weights_state, [] {}), Error) << "without the other ranks";
  EXPECT_THROW(e.with_states([] { fail("a full disk"); }), Error);
  steps(e, 1, 2);
}

TEST(Sharding, OptimizersThatNeedWholeMatricesAreRefused) {
  auto refused = [](const Recipe& r, const std::string& said) {
    try {
      make_engine(r);
    } catch (const Error& e) {
      return std::string(e.what()).find(said) != std::string::npos;
    }
    return false;
  };
  for (const char* optimizer : {"adafactor", "adamw-unfused"}) {
    Recipe r = sharded(on_ranks(2));
    r.optimizer = optimizer;
    EXPECT_TRUE(refused(r, optimizer)) << optimizer;
  }
  Recipe r = sharded(on_ranks(2));
  r.optimizer = "muon", r.precision = "fp8", r.pass_settings["fp8-weights"] = "update";
  EXPECT_TRUE(refused(r, "--fp8-weights update"));
  r = sharded(on_ranks(2));
  r.fusion = "off";
  EXPECT_TRUE(refused(r, "--fusion off"));
  for (const char* reduce : {"each", "overlap"}) {
    r = sharded(on_ranks(2));
    r.pass_settings["reduce"] = reduce;
    EXPECT_TRUE(refused(r, "--reduce"));
  }
}
