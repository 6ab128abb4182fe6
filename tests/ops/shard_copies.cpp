// The shards of several ranks by copy engines: the kernels around the copies, on the emulation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "comm/mesh_groups.h"
#include "core/random.h"
#include "ops/harness.h"
#include "ops/index.h"

namespace crest::test {

namespace {

// A rank that finds the memory of the others at the places of its own.
class Neighbor final : public Communicator {
 public:
  Neighbor(int rank, const std::vector<std::unique_ptr<Memory>>& all, bool pulls)
      : rank_(rank), all_(all), pulls_(pulls) {}
  int rank() const override { return rank_; }
  int size() const override { return int(all_.size()); }
  bool pull(const void* place, void* in, int from, int64_t bytes) override {
    EXPECT_NE(from, rank_);
    if (!pulls_) return false;
    std::memcpy(in, there(place, from), size_t(bytes));
    calls += " copy";
    return true;
  }
  void arrive_at(int flag) override { calls += fmt::format(" arrive {}", flag); }
  void wait_at(int flag) override { calls += fmt::format(" wait {}", flag); }
  void all_gather(const void* in, void* out, DType dtype, int64_t n) override {
    const int64_t bytes = n * int64_t(size_of(dtype));
    for (int r = 0; r < size(); ++r) std::memcpy(static_cast<char*>(out) + r * bytes, there(in, r), size_t(bytes));
  }
  void reduce_scatter(void* in, void* out, DType dtype, int64_t n) override {
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (int r = 0; r < size(); ++r) sum += load_element(there(in, r), dtype, rank_ * n + i);
      store_element(out, dtype, i, sum);
    }
  }
  void all_reduce(void*, DType, int64_t, bool) override { FAIL(); }
  void broadcast(void*, DType, int64_t, int) override { FAIL(); }
  void send_receive(const void*, int, void*, int, int64_t) override { FAIL(); }
  void barrier() override { FAIL(); }

  std::string calls;  // of copies and barriers

 private:
  const void* there(const void* place, int rank) const {
    const auto own = all_[size_t(rank_)]->blocks(), other = all_[size_t(rank)]->blocks();
    for (size_t b = 0; b < own.size(); ++b)
      if (const auto at = static_cast<const uint8_t*>(place) - own[b].data; at >= 0 && size_t(at) < own[b].size)
        return other[b].data + at;
    fail_internal("a place in no memory");
  }

  const int rank_;
  const std::vector<std::unique_ptr<Memory>>& all_;
  const bool pulls_;
};

const Kernel& kernel_named(const std::string& op, const std::string& name, const Device& device) {
  for (const Kernel* k : kernels_for(op, device))
    if (k->name == name) return *k;
  fail_internal("no kernel " + name);
}

struct alignas(64) Line {
  uint8_t bytes[64];
};

const Device* emulation() {
  for (const Device& d : devices())
    if (d.kind == "cuda" && !is_gpu(d)) return &d;
  return nullptr;
}

Single on_comm_stream(const Case& c) {
  Single single(c);
  single.program.code[0].stream = Stream::comm;
  single.program.code[0].attrs.set("barrier_before", 1).set("barrier_after", 2);
  return single;
}

void launch_on_ranks(const Kernel& kernel, const Device& device, const Single& single,
                     const std::vector<std::unique_ptr<Memory>>& ranks, bool pulls) {
  const int n = int(ranks.size());
  for (int r = 0; r < n; ++r) {
    Neighbor world(r, ranks, pulls);
    const MeshGroups groups(Mesh{{Axis::data, n}}, world, {});
    KernelQuery query{single.program, single.instr(), device};
    ASSERT_EQ(kernel.reject(query), "");
    std::vector<Line> workspace((kernel.workspace ? kernel.workspace(query) : 0) / sizeof(Line) + 1);
    std::vector<void*> in, out;
    for (ValueId v : single.instr().in) in.push_back(ranks[size_t(r)]->at(v));
    for (ValueId v : single.instr().out) out.push_back(ranks[size_t(r)]->at(v));
    kernel.launch({single.program, single.instr(), in.data(), out.data(), workspace.data(), nullptr, 1, &groups,
                   nullptr, &device});
    std::string calls = " arrive 1 wait 1";
    for (int k = 1; pulls && k < n; ++k) calls += " copy";
    EXPECT_EQ(world.calls, calls + " arrive 2 wait 2") << "also where nothing can be copied";
  }
}

}  // namespace

// Small integers: their sums are exact.
TEST(ShardCopies, GatherAndAddTheShardsOfAllRanks) {
  const Device* device = emulation();
  if (!device) GTEST_SKIP() << "a build with CUDA has no emulation";
  const Kernel& gather = kernel_named("all_gather", "cuda.all_gather.copy_engine", *device);
  const Kernel& scatter = kernel_named("reduce_scatter", "cuda.reduce_scatter.copy_engine", *device);
  constexpr int64_t shard = 3000;
  auto values = [](int rank, int64_t n, uint64_t seed) {
    std::vector<double> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(double(random_bits(seed, uint64_t(rank), uint64_t(i)) % 21) - 10);
    return x;
  };
  for (DType t : {DType::f32, DType::bf16, DType::f16})
    for (int ranks : {2, 3})
      for (bool pulls : {true, false})
        for (bool adds : {true, false}) {
          SCOPED_TRACE(testing::Message() << name(t) << " " << ranks << " ranks, " << pulls << adds);
          auto memories = [&](const Single& s) {
            std::vector<std::unique_ptr<Memory>> list;
            for (int r = 0; r < ranks; ++r) list.push_back(std::make_unique<Memory>(s.program));
            return list;
          };
          const Attrs attrs = Attrs().set("ranks", ranks);
          const Single whole = on_comm_stream({"all_gather", "", {{.dtype = t, .shape = {shard}}}, attrs});
          auto memory = memories(whole);
          std::vector<double> all;
          for (int r = 0; r < ranks; ++r) {
            const std::vector<double> own = values(r, shard, 1);
            memory[size_t(r)]->write(whole.instr().in[0], own);
            all.insert(all.end(), own.begin(), own.end());
          }
          launch_on_ranks(gather, *device, whole, memory, pulls);
          for (auto& m : memory) {
            EXPECT_EQ(m->read(whole.instr().out[0]), all);
            EXPECT_TRUE(m->guards_intact());
          }

          // Places between tensors may hold anything. A rank clears its own when it begins.
          std::vector<Arg> in = {{.dtype = t, .shape = {shard * ranks}}};
          if (adds) in.push_back({.dtype = t, .shape = {shard}});
          const Single sum = on_comm_stream({"reduce_scatter", "", in, Attrs(attrs).set("gaps", "10:20,2990:3010")});
          memory = memories(sum);
          std::vector<double> expected(size_t(shard * ranks), 0);
          for (int r = 0; r < ranks; ++r) {
            std::vector<double> x = values(r, shard * ranks, 2);
            for (auto [begin, end] : {std::pair(10, 20), {2990, 3010}})
              std::fill(x.begin() + begin, x.begin() + end, std::nan(""));
            memory[size_t(r)]->write(sum.instr().in[0], x);
            for (size_t i = 0; i < x.size(); ++i) expected[i] += std::isnan(x[i]) ? 0 : x[i];
          }
          for (int pass = 0; pass < 2; ++pass) {  // in the first one, later ranks have not begun
            for (int r = 0; adds && r < ranks; ++r) memory[size_t(r)]->write(sum.instr().in[1], values(r, shard, 3));
            launch_on_ranks(scatter, *device, sum, memory, pulls);
          }
          for (int r = 0; r < ranks; ++r) {
            std::vector<double> own(expected.begin() + r * shard, expected.begin() + (r + 1) * shard);
            const std::vector<double> acc = values(r, shard, 3);
            for (size_t i = 0; adds && i < own.size(); ++i) own[i] += acc[i];
            EXPECT_EQ(memory[size_t(r)]->read(sum.instr().out[0]), own) << "rank " << r;
            EXPECT_TRUE(memory[size_t(r)]->guards_intact());
          }
        }
}

}  // namespace crest::test
