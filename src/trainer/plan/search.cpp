#include "plan/search.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/round_up.h"
#include "passes/loss_chunk.h"
#include "passes/tensor_parallel.h"
#include "plan/choose_kernels.h"

namespace crest {

namespace {

constexpr int64_t most = int64_t(1) << 20;

class BatchSearch {
 public:
  BatchSearch(const CompiledSession& session, const SessionUse& use, int64_t limit)
      : session_(session), use_(use), limit_(limit) {
    int64_t mine = 0;
    for (auto& c : session.programs) {
      int64_t& bytes = depends(c.spec) ? mine : fixed_;
      bytes = std::max(bytes, c.memory.bytes);
    }
    known_[session.recipe.batch] = session.slot_bytes + std::max(fixed_, mine);
    for (auto& b : session.gradients) gradients_ = std::max(gradients_, b.offset + b.bytes);
  }

  int64_t run() {
    if (!fits(1)) return 0;
    // A batch with one more chunk of the loss has smaller chunks than the batch before. Bytes grow
    // along these first batches of each number of chunks, and within each number.
    Batches firsts = batches_with_more_chunks();
    int64_t chunks = last_that_fits(firsts);
    int64_t end = chunks + 1 < firsts.count ? firsts.at(chunks + 1) : most + 1;
    Batches within{firsts.at(chunks), 1, 1, end - firsts.at(chunks)};
    return possible(within.at(last_that_fits(within)));
  }

 private:
  // Micro batches first, first + step, ... with a fractional step, rounded down.
  struct Batches {
    int64_t first, step, of, count;
    int64_t at(int64_t i) const { return first + i * step / of; }
    // Index of the last one up to `batch`.
    int64_t index(int64_t batch) const { return ((batch - first + 1) * of - 1) / step; }
    bool has(int64_t batch) const { return batch >= first && index(batch) < count && at(index(batch)) == batch; }
  };

  Batches batches_with_more_chunks() const {
    const Recipe& r = session_.recipe;
    int64_t seq = r.padded_seq() / r.layout().size(Axis::context), chunk = loss_chunk_of(r);
    if (chunk < seq) return {1, 1, 1, 1};
    int64_t count = std::min<int64_t>(most_loss_chunks, (most - 1) * seq / chunk + 1);
    return {1, chunk, seq, count};
  }

  // The first one must fit.
  int64_t last_that_fits(const Batches& batches) {
    int64_t low = 0, high = batches.count;  // [low, high): low fits; high does not, or is past the list
    for (auto& [batch, bytes] : std::map(known_))
      if (batches.has(batch)) narrow(batches, batches.index(batch), low, high);
    for (int tries = 0; high - low > 1; ++tries) {
      // One plan and a rough estimate give a poor slope: go to 16 times the batch at most.
      int64_t batch = crossing(batches);
      if (high == batches.count) batch = std::min(batch, 16 * batches.at(low));
      int64_t guess = batch < batches.first ? low : batches.index(batch);
      // Jumps in the arena (alignment, another peak) can mislead the line: bisect.
      if (tries > 3 && tries % 2) guess = low + (high - low) / 2;
      narrow(batches, std::clamp(guess, low + 1, high - 1), low, high);
    }
    return low;
  }

  // The next batch divisible among the ranks, planned instead.
  int64_t possible(int64_t batch) const { return round_up(batch, batch_multiple(session_.recipe)); }

  bool depends(const ProgramSpec& spec) const {
    return spec.kind == ProgramKind::train || (spec.kind == ProgramKind::validation && !use_.validation_batch);
  }

  // Bytes under the limit except transient arena and slots.
  int64_t always() const { return session_.limited_bytes() - session_.transient_bytes - session_.slot_bytes; }
  // A larger batch without a kernel cannot run, whatever its memory.
  bool fits(int64_t batch) {
    try {
      return always() + bytes(batch) <= limit_;
    } catch (const NoKernel&) {
      if (batch <= session_.recipe.batch) throw;
      return false;
    }
  }

  void narrow(const Batches& batches, int64_t i, int64_t& low, int64_t& high) {
    if (i <= low || i >= high) return;
    (fits(batches.at(i)) ? low : high) = i;
  }

  // Bytes of transient arena and slots. Programs independent of the batch keep their size. If
  // training alone is too large, returns only its bytes, the larger part anyway.
  int64_t bytes(int64_t batch) {
    if (auto it = known_.find(batch); it != known_.end()) return it->second;
    Recipe r = session_.recipe;
    r.batch = possible(batch);
    int64_t transient = fixed_, slots = 0;
    for (ProgramKind kind : {ProgramKind::train, ProgramKind::validation}) {
      std::vector<ProgramSpec> specs = session_programs(r, use_);
      std::erase_if(specs, [&](auto& s) { return s.kind != kind || !depends(s); });
      if (specs.empty()) continue;
      const CompiledSession s = compile(r, session_.device, specs, {.verify = false, .stage = session_.stage});
      transient = std::max(transient, s.transient_bytes), slots = std::max(slots, s.slot_bytes);
      if (always() + slots + transient > limit_) break;
    }
    return known_[batch] = slots + transient;
  }

  // Where a line through the two known plans nearest to the limit crosses it.
  int64_t crossing(const Batches& batches) const {
    double room = double(limit_ - always());
    std::vector<std::pair<int64_t, int64_t>> near;
    for (auto& known : known_)
      if (batches.has(known.first)) near.push_back(known);
    if (near.size() < 2) near.emplace_back(0, gradients_);  // roughly the size for batch 0
    std::sort(near.begin(), near.end(),
              [&](auto& a, auto& b) { return std::abs(double(a.second) - room) < std::abs(double(b.second) - room); });
    auto [x0, y0] = near[0];
    auto [x1, y1] = near[1];
    // Two adjacent points give a poor slope: use the farthest point instead.
    if (std::abs(x1 - x0) < 2 && near.size() > 2) std::tie(x1, y1) = near.back();
    double slope = double(y1 - y0) / double(x1 - x0);
    if (!(slope > 0)) return 2 * std::max(x0, x1);
    double x = std::floor(double(x0) + (room - double(y0)) / slope);
    return int64_t(std::clamp(x, 1.0, double(most)));
  }

  const CompiledSession& session_;
  SessionUse use_;
  int64_t limit_, fixed_ = 0, gradients_ = 0;
  std::map<int64_t, int64_t> known_;  // batch -> bytes()
};

}  // namespace

int64_t largest_batch(const CompiledSession& session, const SessionUse& use, int64_t limit) {
  return BatchSearch(session, use, limit).run();
}

int64_t largest_batch(const Recipe& recipe, const Device& device, const SessionUse& use, int64_t limit) {
  Recipe one = recipe;
  one.batch = 1;
  CompileOptions quick;
  quick.verify = false;
  return largest_batch(compile(one, device, session_programs(one, use), quick), use, limit);
}

}  // namespace crest
