// --offload optimizer gives the bits of an update on the device, with the state in host memory.
// Plans are exact, transfers overlap with updates, and checkpoints are the same.
#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "memory_folder.h"
#include "passes/offload.h"
#include "plan/addresses.h"
#include "program/op.h"
#include "train/state_bytes.h"

using namespace crest;
using crest::test::test_device;

namespace {

Recipe small(const std::string& optimizer = "adamw", const std::string& precision = "fp32") {
  Recipe r = tiny_recipe();
  r.batch = 1, r.seq = 9;
  r.optimizer = optimizer, r.precision = precision, r.deterministic = true;
  return r;
}

// Many pieces, even of this model; states of 160 bytes and more move.
Recipe offloaded(Recipe r, const std::string& piece = "10kB") {
  r.pass_settings["offload"] = "optimizer", r.pass_settings["offload-piece"] = piece;
  return r;
}

CompiledSession session_of(const Recipe& r, const Device& device = test_device(2)) {
  SessionUse use;
  use.train = use.update = use.validation = true;
  return compile(r, device, session_programs(r, use));
}

const CompiledProgram& update_of(const CompiledSession& s) { return s.programs[size_t(s.find("update"))]; }

int64_t count(const CompiledSession& s, const std::string& op) {
  auto& code = update_of(s).program.code;
  return std::count_if(code.begin(), code.end(), [&](auto& i) { return i.op->name == op; });
}

int differing(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  EXPECT_EQ(a.size(), b.size());
  int n = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) n += a[i] != b[i];
  return n;
}

int64_t state_bytes(const std::vector<PersistentBlock>& blocks) {
  int64_t sum = 0;
  for (auto& b : blocks)
    if (b.category == Category::optimizer_state && b.name != "scalars") sum += b.bytes;
  return sum;
}

Device gpu() {
#if CREST_HAVE_CUDA
  return test_device(2);
#else
  Device d = crest::test::emulated_gpu(2);
  d.sm = 80;  // without kernels slow to emulate
  return d;
#endif
}

}  // namespace

TEST(Offload, GivesTheBitsOfAnUpdateOnTheDevice) {
  for (auto& [optimizer, precision] : {std::pair{"adamw", "fp32"},
                                       {"adamw", "bf16"},
                                       {"adamw-unfused", "fp32"},
                                       {"adamw-bf16", "bf16"},
                                       {"adamw-bf16-kahan", "bf16"},
                                       {"adamw-bf16-stochastic", "bf16"},
                                       {"adamw-8bit", "fp32"},
                                       {"adamw-8bit", "bf16"},
                                       {"adamw-fp8", "bf16"},
                                       {"sgd", "fp32"},
                                       {"lion", "bf16"},
                                       {"adafactor", "fp32"},
                                       {"adafactor", "bf16"},
                                       {"adafactor-momentum", "fp32"},
                                       {"muon", "fp32"},
                                       {"muon", "bf16"}})
    for (const char* fusion : {"on", "off"}) {
      SCOPED_TRACE(testing::Message() << optimizer << " " << precision << " fusion " << fusion);
      Recipe r = small(optimizer, precision);
      r.fusion = fusion;
      auto plain = trained(r);
      for (const char* piece : {"10kB", "100kB"}) {
        Recipe moved = offloaded(r, piece);
        EXPECT_EQ(differing(plain, trained(moved)), 0) << piece;
        CompiledSession s = session_of(moved);
        EXPECT_GT(s.host_bytes, 0) << piece;
        EXPECT_EQ(count(s, "copy_in"), count(s, "copy_out"));
      }
    }
}

TEST(Offload, WithAccumulationClippingSkippedStepsAndWholeMasters) {
  std::vector<Recipe> recipes;
  Recipe r = small("adamw", "bf16");
  r.grad_accumulation = 3, r.policy = "autocast", r.clip = 0.01;
  recipes.push_back(r);
  r = small("adamw", "fp16");
  r.loss_scale = 1e30;  // overflows: steps are skipped
  recipes.push_back(r);
  r = small("lion", "bf16");
  r.pass_settings["master-weights"] = "fp32", r.grad_dtype = "bf16", r.clip = 0;
  recipes.push_back(r);
  r = small("adamw-8bit", "bf16");
  r.pass_settings["state-block"] = "256";
  recipes.push_back(r);
  for (const Recipe& recipe : recipes) {
    SCOPED_TRACE(recipe.optimizer + " " + recipe.precision);
    EXPECT_EQ(differing(trained(recipe), trained(offloaded(recipe))), 0);
  }
}

// Every rank has its shard in its host's memory.
TEST(Offload, OnRanksWithAndWithoutShards) {
  for (const char* optimizer : {"adamw", "adamw-8bit", "adamw-bf16-stochastic", "muon"})
    for (int n : {2, 3})
      for (const char* shard : {"none", "optimizer", "gradients", "weights"}) {
        SCOPED_TRACE(testing::Message() << optimizer << " on " << n << " shard " << shard);
        Recipe r = small(optimizer, "bf16");
        r.data_parallel = n, r.pass_settings["shard"] = shard;
        if (std::string(shard) == "gradients" || std::string(shard) == "weights") r.pass_settings["bucket"] = "20kB";
        EXPECT_EQ(differing(trained(r), trained(offloaded(r, "4kB"))), 0);
        CompiledSession s = session_of(offloaded(r, "4kB"));
        EXPECT_GT(count(s, "copy_in"), 4);
      }
  Recipe r = small();
  r.data_parallel = 2, r.clip = 0;
  r.pass_settings["shard"] = "optimizer", r.pass_settings["reduce"] = "bucket", r.pass_settings["bucket"] = "20kB";
  for (const char* gather : {"update", "forward"}) {
    r.pass_settings["gather"] = gather;
    EXPECT_EQ(differing(trained(r), trained(offloaded(r, "4kB"))), 0) << gather;
  }
  r.pass_settings["shard"] = "none", r.pass_settings["reduce"] = "flat";
  Engine e = make_engine(offloaded(r));
  steps(e, 0, 2);
  auto states = [&](int rank) {
    std::vector<std::vector<float>> all;
    for (auto& p : own_parameters(e.rank(rank)))
      for (auto& state : p.states) all.push_back(state.tensor.floats());
    return all;
  };
  EXPECT_EQ(states(0), states(1));
}

// With the kernels of a GPU, or of its emulation on the host: the pieces of a group give the same
// result as the whole group.
TEST(Offload, OnAGpu) {
  for (const char* optimizer : {"adamw", "adamw-8bit", "adamw-fp8", "adamw-bf16-stochastic"}) {
    SCOPED_TRACE(optimizer);
    Recipe r = small(optimizer, "bf16");
    r.model.layers = 1, r.model.width = 16, r.model.heads = r.model.kv_heads = 1, r.model.ff = 32, r.seq = 5;
    EXPECT_EQ(differing(trained(r, gpu(), 2), trained(offloaded(r, "4kB"), gpu(), 2)), 0);
    r.data_parallel = 2, r.pass_settings["shard"] = "optimizer";
    EXPECT_EQ(differing(trained(r, gpu(), 2), trained(offloaded(r, "4kB"), gpu(), 2)), 0) << "shares";
  }
}

// Device memory holds three pieces and all states too small to move. Host memory holds the rest.
// Both equal the executor's allocations.
TEST(Offload, ThePlanIsExact) {
  for (const char* optimizer : {"adamw", "adamw-8bit"}) {
    SCOPED_TRACE(optimizer);
    Recipe r = small(optimizer, "bf16");
    CompiledSession plain = session_of(r);
    EXPECT_EQ(plain.host_bytes, 0);
    Engine e = make_engine(offloaded(r));
    const CompiledSession& s = e.session();
    EXPECT_EQ(e.rank(0).held_bytes(), s.planned_bytes());
    EXPECT_EQ(e.rank(0).held_host_bytes(), s.host_bytes);
    EXPECT_EQ(state_bytes(s.host) + state_bytes(s.persistent), state_bytes(plain.persistent));
    EXPECT_LT(state_bytes(s.persistent), state_bytes(plain.persistent) / 50);
    EXPECT_EQ(total(s.by_category()), s.planned_bytes());
    // Each buffer has the size of the largest state passing it.
    const CompiledProgram& c = update_of(s);
    std::map<std::string, int64_t> largest;
    for (auto& instr : c.program.code)
      if (instr.op->name == std::string("copy_in")) {
        int64_t& bytes = largest[c.program.at(c.program.at(instr.in[1]).layout.storage).name];
        bytes = std::max(bytes, c.program.at(instr.in[0]).bytes());
      }
    int64_t buffers = 0, wanted = 0;
    for (auto& b : c.memory.blocks)
      if (b.name.starts_with("offload.")) buffers += b.bytes;
    for (auto& [buffer, bytes] : largest) wanted += (bytes + 255) / 256 * 256;
    EXPECT_GT(buffers, 0);
    EXPECT_EQ(buffers, wanted);
    if (optimizer == std::string("adamw")) {
      EXPECT_LE(buffers, state_buffers * (10'000 + 3 * 256)) << "pieces of three states, each aligned";
    }
    EXPECT_EQ(s.limited_bytes(), s.planned_bytes() + (s.device.kind == "cpu" ? s.host_bytes : 0));
  }
}

// Whole gradients live as long as without offload: the update reads pieces of groups, but the
// planner counts tensors.
TEST(Offload, DoesNotLengthenTheLivesOfGradients) {
  Recipe r = small("adamw", "bf16");
  auto train_bytes = [](const CompiledSession& s) { return s.programs[size_t(s.find("train"))].memory.bytes; };
  EXPECT_EQ(train_bytes(session_of(offloaded(r))), train_bytes(session_of(r)));
}

// The state of the next piece arrives while a piece is updated and an earlier one returns, and not
// before its buffer is free.
TEST(Offload, TransfersOverlapWithUpdates) {
  CompiledSession s = session_of(offloaded(small()));
  const CompiledProgram& c = update_of(s);
  HappensBefore ordered(c.program, c.waits);
  std::vector<int> in, update, out;  // two states each
  for (int i = 0; i < int(c.program.code.size()); ++i) {
    const Instr& instr = c.program.code[size_t(i)];
    std::string op = instr.op->name;
    if (op == "copy_in") in.push_back(i);
    if (op == "adamw") update.push_back(i);
    if (op == "copy_out") out.push_back(i);
    if (op != "split_rows") {
      EXPECT_EQ(instr.stream == Stream::copy, op == "copy_in") << i;
    }
    EXPECT_EQ(instr.stream == Stream::copy_back, op == "copy_out") << i;
  }
  size_t pieces = update.size();
  ASSERT_GT(pieces, 6u);
  ASSERT_EQ(in.size(), 2 * pieces);
  ASSERT_EQ(out.size(), 2 * pieces);
  for (size_t k = 0; k < pieces; ++k) {
    EXPECT_TRUE(ordered(in[2 * k], update[k]) && ordered(in[2 * k + 1], update[k])) << k;
    EXPECT_TRUE(ordered(update[k], out[2 * k])) << k;
    if (k + 1 < pieces) {
      EXPECT_FALSE(ordered(update[k], in[2 * k + 2])) << k << ": the next piece waits for this update";
      EXPECT_FALSE(ordered(out[2 * k], update[k + 1])) << k << ": the next update waits for the way back";
    }
    if (k + 2 < pieces) {
      EXPECT_FALSE(ordered(out[2 * k], in[2 * k + 4])) << k << ": a way in waits for the way back before it";
    }
    for (size_t j = 0, next = k + state_buffers; j < 2 && next < pieces; ++j) {
      EXPECT_TRUE(ordered(out[2 * k + j], in[2 * next + j])) << k << ": the buffer is in use";
    }
  }
  EXPECT_LT(in[3], int(std::find_if(c.program.code.begin(), c.program.code.end(),
                                    [](auto& i) { return i.op->name == std::string("grad_norm"); }) -
                       c.program.code.begin()))
      << "the first two pieces arrive while the norm is computed";
}

// A run may continue with or without it.
TEST(Offload, CheckpointsDoNotShowIt) {
  for (const char* optimizer : {"adamw", "adamw-8bit", "muon"}) {
    SCOPED_TRACE(optimizer);
    Recipe r = small(optimizer, "bf16");
    MemoryFolder plain_folder, moved_folder;
    Engine plain = make_engine(r), moved = make_engine(offloaded(r));
    steps(plain, 0, 3), steps(moved, 0, 3);
    save(plain, plain_folder.path()), save(moved, moved_folder.path());
    EXPECT_EQ(hashes_of(plain_folder.path()), hashes_of(moved_folder.path()));
    steps(plain, 3, 6);
    auto expected = bytes_of(plain);
    for (const Recipe& next : {r, offloaded(r), offloaded(r, "4kB")}) {
      Engine e = make_engine(next);
      restore(e, Checkpoint::open(moved_folder.path() + "/step-000003"));
      steps(e, 3, 6);
      EXPECT_EQ(differing(expected, bytes_of(e)), 0);
    }
  }
}

TEST(Offload, SmallStatesStay) {
  CompiledSession s = session_of(offloaded(small("adafactor"), "64MiB"));
  EXPECT_EQ(s.host_bytes, 0);
  EXPECT_EQ(count(s, "copy_in"), 0);
}
