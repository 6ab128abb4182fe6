// Properties of the memory planner on random Programs. The test computes lifetimes and overlaps
// again, by brute force, so a mistake in the planner and in verify() cannot hide.
#include "plan/memory_plan.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/scalars.h"
#include "plan/random_program.h"
#include "program/op.h"
#include "program/verify.h"
#include "program/waits.h"

using namespace crest;
using namespace crest::test;

namespace {

std::string problem(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

rc::Gen<std::vector<uint32_t>> choices() {
  return rc::gen::resize(160, rc::gen::container<std::vector<uint32_t>>(rc::gen::arbitrary<uint32_t>()));
}
// rapidcheck reads this variable once, at the first property.
const int more_cases = ::setenv("RC_PARAMS", "max_success=1000", 0);
void check_property(const char* what, const std::function<void()>& property) {
  ASSERT_EQ(more_cases, 0);
  EXPECT_TRUE(rc::check(what, property)) << what;
}

// Uses over time: a storage of the micro step or an instruction's workspace.
struct Use {
  int first = -1, last = -1;
  ValueId storage = no_value;
  int64_t begin = 0, end = 0;
  bool overlaps(const Use& o) const { return begin < o.end && o.begin < end; }
};

// Whether instruction j must come after i: they share a stream, or a storage that one of them
// writes.
bool next_to(const Program& p, int i, int j) {
  const Instr &x = p.code[size_t(i)], &y = p.code[size_t(j)];
  if (x.stream == y.stream) return true;
  auto touches = [&](const std::vector<ValueId>& a, const std::vector<ValueId>& b) {
    for (ValueId v : a)
      for (ValueId w : b)
        if (v != no_value && w != no_value && p.at(v).layout.storage == p.at(w).layout.storage) {
          Extent e = extent_of(p.at(v)), f = extent_of(p.at(w));
          if (e.begin < f.end && f.begin < e.end) return true;
        }
    return false;
  };
  return touches(x.out, y.in) || touches(x.in, y.out) || touches(x.out, y.out);
}

// An instruction of another stream may run until the compute stream must come after it, directly or
// through instructions in between.
int end_of(const Program& p, int i) {
  if (p.code[size_t(i)].stream == Stream::compute) return i;
  std::vector<int> after = {i};
  for (int j = i + 1; j < int(p.code.size()); ++j) {
    if (std::none_of(after.begin(), after.end(), [&](int k) { return next_to(p, k, j); })) continue;
    if (p.code[size_t(j)].stream == Stream::compute) return j;
    after.push_back(j);
  }
  return int(p.code.size()) - 1;
}

std::vector<Use> uses(const RandomProgram& r, const MemoryPlan& plan) {
  const Program& p = r.program;
  std::vector<Use> all(p.values.size());
  auto touch = [&](ValueId v, int at) {
    if (v == no_value) return;
    Use& u = all[size_t(p.at(v).layout.storage)];
    u.first = u.first < 0 ? at : std::min(u.first, at);
    u.last = std::max(u.last, at);
  };
  int n = int(p.code.size());
  for (ValueId v : p.inputs) touch(v, 0);
  for (ValueId v : p.outputs) touch(v, std::max(n - 1, 0));
  for (int i = 0; i < n; ++i)
    for (auto* list : {&p.code[size_t(i)].in, &p.code[size_t(i)].out})
      for (ValueId v : *list) touch(v, i), touch(v, end_of(p, i));
  std::vector<Use> used;
  for (size_t v = 0; v < all.size(); ++v) {
    if (all[v].first < 0 || p.values[v].lifetime != Lifetime::micro_step) continue;
    int block = plan.block_of_value[v];
    EXPECT_GE(block, 0) << p.values[v].name << " has no memory";
    all[v].storage = ValueId(v);
    all[v].begin = plan.blocks[size_t(block)].offset;
    all[v].end = all[v].begin + p.values[v].storage_bytes();
    EXPECT_LE(p.values[v].storage_bytes(), plan.blocks[size_t(block)].bytes);
    used.push_back(all[v]);
  }
  for (int i = 0; i < n; ++i) {
    if (r.workspace[size_t(i)] <= 0) continue;
    auto& b = plan.blocks[size_t(plan.block_of_instr[size_t(i)])];
    used.push_back({i, end_of(p, i), no_value, b.offset, b.offset + r.workspace[size_t(i)]});
  }
  return used;
}

// Whether `late` may take the place of `early`: it is an output of the last reader of `early`, and
// the operation allows it.
bool may_take_over(const Program& p, const Use& early, const Use& late) {
  if (early.storage == no_value || late.storage == no_value || early.last != late.first) return false;
  if (early.begin != late.begin || early.end != late.end) return false;
  const Instr& instr = p.code[size_t(late.first)];
  if (instr.stream != Stream::compute) return false;
  for (auto& may : instr.op->may_overlay)
    if (size_t(may.out) < instr.out.size() && size_t(may.in) < instr.in.size() &&
        instr.out[size_t(may.out)] == late.storage && instr.in[size_t(may.in)] == early.storage)
      return true;
  return false;
}

}  // namespace

TEST(MemoryPlan, NothingAliveIsOverwritten) {
  int overlays = 0;
  check_property("two things in use at once lie apart, but for allowed overlays", [&] {
    RandomProgram r = random_program(*choices());
    verify(r.program, "generator");
    MemoryPlan plan = plan_memory(r.program, r.workspace);
    verify(plan);
    std::vector<Use> used = uses(r, plan);
    for (size_t a = 0; a < used.size(); ++a) {
      RC_ASSERT(used[a].begin >= 0 && used[a].end <= plan.bytes);
      RC_ASSERT(used[a].begin % 256 == 0);
      for (size_t b = a + 1; b < used.size(); ++b) {
        const Use &x = used[a].first <= used[b].first ? used[a] : used[b], &y = &x == &used[a] ? used[b] : used[a];
        if (y.first > x.last || !x.overlaps(y)) continue;
        bool allowed = may_take_over(r.program, x, y) || may_take_over(r.program, y, x);
        overlays += allowed;
        RC_ASSERT(allowed);
      }
    }
  });
  EXPECT_GT(overlays, 100) << "overlays were never tried";
}

// Rows with a pitch own the memory of their gaps. Only values with the same layout take their
// place.
TEST(MemoryPlan, RowsWithAPitch) {
  constexpr int64_t pitch = 320;
  for (bool gradient_too : {true, false}) {
    Program p;
    Builder b(p);
    ValueId x = b.declare("x", DType::f32, {7, 8}, Role::input, Lifetime::micro_step);
    ValueId w = b.declare("w", DType::f32, {257, 8}, Role::weight, Lifetime::persistent);
    ValueId targets = b.declare("targets", DType::i32, {7}, Role::input, Lifetime::micro_step);
    ValueId scalars = b.declare("scalars", DType::u8, {int64_t(sizeof(Scalars))}, Role::state, Lifetime::persistent);
    p.inputs = {x, targets};
    b.origin = Origin("head");
    ValueId logits = b.emit1("linear", {x, w});
    ValueId gradient =
        b.emit("cross_entropy_fused", {logits, targets, scalars}, Attrs().set("vocab", 257).set("scale", 1.0))[1];
    ValueId dx = b.emit1("linear_dx", {gradient, w});
    p.outputs = {dx};
    p.at(logits).layout.strides = {pitch, 1};
    if (gradient_too) p.at(gradient).layout.strides = {pitch, 1};
    verify(p, "test");
    MemoryPlan plan = plan_memory(p, {0, 0, 0});
    verify(plan);
    int block = plan.block_of_value[size_t(logits)], other = plan.block_of_value[size_t(gradient)];
    EXPECT_EQ(plan.blocks[size_t(block)].bytes, 7 * pitch * 4);
    EXPECT_EQ(block == other, gradient_too);
    EXPECT_EQ(plan.blocks[size_t(other)].bytes, gradient_too ? 7 * pitch * 4 : (7 * 257 * 4 + 255) / 256 * 256);
  }
}

TEST(MemoryPlan, PeakIsALowerBoundThatAddsUp) {
  check_property("live_peak is the largest sum of what is alive, at_peak its parts", [] {
    RandomProgram r = random_program(*choices());
    MemoryPlan plan = plan_memory(r.program, r.workspace);
    RC_ASSERT(plan.live_peak <= plan.bytes);
    RC_ASSERT(total(plan.at_peak) == plan.live_peak);
    int64_t peak = 0, end = 0;
    for (size_t i = 0; i < r.program.code.size(); ++i) {
      int64_t live = 0;
      for (auto& b : plan.blocks)
        if (b.first <= int(i) && int(i) <= b.last) live += b.bytes;
      peak = std::max(peak, live);
      if (int(i) == plan.peak_instr) RC_ASSERT(live == plan.live_peak);
    }
    for (auto& b : plan.blocks) end = std::max(end, b.offset + b.bytes);
    RC_ASSERT(peak == plan.live_peak);
    RC_ASSERT(end == plan.bytes);
  });
}

TEST(MemoryPlan, IsDeterministic) {
  check_property("the same Program gives the same plan", [] {
    RandomProgram r = random_program(*choices());
    MemoryPlan a = plan_memory(r.program, r.workspace), b = plan_memory(r.program, r.workspace);
    RC_ASSERT(a.blocks.size() == b.blocks.size());
    for (size_t i = 0; i < a.blocks.size(); ++i) {
      RC_ASSERT(a.blocks[i].offset == b.blocks[i].offset);
      RC_ASSERT(a.blocks[i].name == b.blocks[i].name);
    }
    RC_ASSERT(print(a, r.program) == print(b, r.program));
  });
}

TEST(MemoryPlan, VerifyFindsAPlantedOverlap) {
  int planted = 0;
  check_property("a block moved onto one that is alive with it is found", [&] {
    RandomProgram r = random_program(*choices());
    MemoryPlan plan = plan_memory(r.program, r.workspace);
    if (plan.blocks.size() < 2) return;
    size_t moved = *rc::gen::inRange<size_t>(0, plan.blocks.size());
    size_t onto = *rc::gen::inRange<size_t>(0, plan.blocks.size());
    int64_t shift = *rc::gen::inRange<int64_t>(0, 4) * 256;
    Block &a = plan.blocks[moved], &b = plan.blocks[onto];
    a.offset = b.offset + shift;
    bool clash = false;  // by brute force: it may hit another one than was meant, or none
    for (size_t i = 0; i < plan.blocks.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        const Block &x = plan.blocks[i], &y = plan.blocks[j];
        clash |=
            x.first <= y.last && y.first <= x.last && x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
      }
    clash |= a.offset + a.bytes > plan.bytes;
    std::string found = problem([&] { verify(plan); });
    RC_ASSERT(clash == !found.empty());
    planted += clash;
  });
  EXPECT_GT(planted, 20);
}

TEST(MemoryPlan, VerifyNamesBothBlocksAndTheInstruction) {
  RandomProgram r = random_program({3, 3, 3, 3, 0x13, 0x13});
  MemoryPlan plan = plan_memory(r.program, r.workspace);
  plan.blocks[1].offset = plan.blocks[0].offset;
  plan.blocks[1].first = plan.blocks[0].first, plan.blocks[1].last = plan.blocks[0].last;
  std::string text = problem([&] { verify(plan); });
  EXPECT_NE(text.find("'" + plan.blocks[0].name + "'"), std::string::npos) << text;
  EXPECT_NE(text.find("'" + plan.blocks[1].name + "'"), std::string::npos) << text;
  EXPECT_NE(text.find("overlap at instruction"), std::string::npos) << text;
  MemoryPlan outside = plan_memory(r.program, r.workspace);
  outside.bytes -= 256;
  EXPECT_NE(problem([&] { verify(outside); }).find("leaves the arena"), std::string::npos);
}

// Compute continues while a collective runs. So the collective's input must stay until an
// instruction waits for its result, even if nothing else reads it.
TEST(MemoryPlan, AnotherStreamsTensorsStayUntilTheWaitPoint) {
  for (bool waited : {true, false}) {
    Program p;
    Builder b(p);
    b.origin = Origin("a");
    ValueId x = b.declare("x", DType::f32, {1, 100, 8}, Role::input, Lifetime::micro_step);
    p.inputs = {x};
    ValueId g = b.emit1("scale", {x}, Attrs().set("value", 1.0));  // 0
    b.stream = Stream::comm;
    ValueId sum = b.emit1("all_reduce", {g}, Attrs().set("mean", 0));  // 1
    b.stream = Stream::compute;
    std::vector<ValueId> chain = {x};
    for (int i = 0; i < 6; ++i) chain.push_back(b.emit1("softmax", {chain.back()}));  // 2..7
    if (waited) b.emit1("add", {sum, chain.back()});                                  // 8
    for (int i = 0; i < 4; ++i) chain.push_back(b.emit1("softmax", {chain.back()}));
    p.outputs = {chain.back()};
    verify(p, "test");
    std::vector<int64_t> workspace(p.code.size(), 0);
    workspace[1] = 5000;  // the collective's scratch is in use just as long
    MemoryPlan plan = plan_memory(p, workspace);
    verify(plan);
    const Block& block = plan.blocks[size_t(plan.block_of_value[size_t(g)])];
    const Block& scratch = plan.blocks[size_t(plan.block_of_instr[1])];
    int end = waited ? 8 : int(p.code.size()) - 1;
    EXPECT_EQ(block.first, 0);
    EXPECT_EQ(block.last, end);
    EXPECT_EQ(scratch.last, end);
    for (size_t i = 1; i < chain.size(); ++i) {
      const Block& other = plan.blocks[size_t(plan.block_of_value[size_t(chain[i])])];
      if (other.first > end) continue;
      EXPECT_TRUE(other.offset >= block.offset + block.bytes || block.offset >= other.offset + other.bytes) << i;
      EXPECT_TRUE(other.offset >= scratch.offset + scratch.bytes || scratch.offset >= other.offset + other.bytes) << i;
    }
  }
}

// A collective is done when a later one of its stream is, even if its result is never read.
TEST(MemoryPlan, AWaitForALaterCollectiveEndsAnEarlierOne) {
  Program p;
  Builder b(p);
  b.origin = Origin("a");
  ValueId x = b.declare("x", DType::f32, {1, 100, 8}, Role::input, Lifetime::micro_step);
  p.inputs = {x};
  ValueId g = b.emit1("scale", {x}, Attrs().set("value", 1.0)), h = b.emit1("scale", {x}, Attrs().set("value", 2.0));
  b.stream = Stream::comm;
  b.emit1("all_reduce", {g}, Attrs().set("mean", 0));                // 2
  ValueId sum = b.emit1("all_reduce", {h}, Attrs().set("mean", 0));  // 3
  b.stream = Stream::compute;
  ValueId y = b.emit1("softmax", {x});
  y = b.emit1("add", {y, sum});  // 5
  for (int i = 0; i < 3; ++i) y = b.emit1("softmax", {y});
  p.outputs = {y};
  MemoryPlan plan = plan_memory(p, {0, 0, 3000, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(plan.blocks[size_t(plan.block_of_value[size_t(g)])].last, 5);
  EXPECT_EQ(plan.blocks[size_t(plan.block_of_instr[2])].last, 5);
  EXPECT_EQ(plan.blocks[size_t(plan.block_of_instr[2])].category, Category::comm_buffers);
}

TEST(MemoryPlan, AnOverlayNeedsADyingInput) {
  Program p;
  Builder b(p);
  b.origin = Origin("a");
  ValueId x = b.declare("x", DType::f32, {1, 100, 8}, Role::input, Lifetime::micro_step);
  p.inputs = {x};
  ValueId dies = b.emit1("tanh", {x});  // x is read again below
  ValueId next = b.emit1("tanh", {dies});
  ValueId viewed = b.emit1("scale", {next}, Attrs().set("value", 2.0));
  ValueId view = b.emit1("split_heads", {viewed}, Attrs().set("heads", 2).set("kv_heads", 0));
  ValueId after_view = b.emit1("tanh", {viewed});
  ValueId joined = b.emit1("join_heads", {view});
  ValueId last = b.emit1("add", {b.emit1("add", {joined, after_view}), x});
  p.outputs = {last};
  MemoryPlan plan = plan_memory(p, std::vector<int64_t>(p.code.size(), 0));
  auto block = [&](ValueId v) { return plan.block_of_value[size_t(v)]; };
  EXPECT_NE(block(dies), block(x));
  EXPECT_EQ(block(next), block(dies));
  EXPECT_EQ(block(viewed), block(next));
  EXPECT_NE(block(after_view), block(viewed)) << "a view of it is read later";
  EXPECT_EQ(block(view), block(viewed));
}

TEST(MemoryPlan, EmptyProgramsNeedNothing) {
  Program p;
  MemoryPlan plan = plan_memory(p, {});
  EXPECT_EQ(plan.bytes, 0);
  EXPECT_EQ(plan.live_peak, 0);
  verify(plan);
}

// Workspaces of one operation are never alive together, so a table has one row for them.
TEST(MemoryPlan, TheTableJoinsWorkspacesOfOneOperation) {
  Program p;
  Builder b(p);
  b.origin = Origin("a");
  ValueId x = b.declare("x", DType::f32, {1, 100, 8}, Role::input, Lifetime::micro_step);
  p.inputs = {x};
  p.outputs = {b.emit1("tanh", {b.emit1("tanh", {b.emit1("tanh", {x})})})};
  const MemoryPlan plan = plan_memory(p, {5120, 6144, 5120});
  const std::string table = print(plan, p);
  EXPECT_NE(table.find("5.00 KiB at      various  instructions     0..2     workspace    workspace of tanh x 2\n"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("instructions     1..1     workspace    workspace of tanh\n"), std::string::npos) << table;
}
