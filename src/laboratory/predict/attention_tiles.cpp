#include "predict/attention_tiles.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <string_view>
#include <vector>

namespace crest {

namespace {

constexpr int64_t tile_keys = 128;
// With more items than this for each multiprocessor, hardly one is ever idle.
constexpr int64_t many_rounds = 40;
// Up to here blocks of the forward kernel for heads of 64 have fixed lists of items, as in
// start_forward.
constexpr int64_t most_turns = 4;
// Fitted to calibrations of the H100 and the H200: docs/results/predictions.md. While some
// multiprocessors are idle, the others compute gradients faster.
constexpr double idle_forward = 1, idle_gradient = 0.7;
// An item fills and drains its pipeline for as long as it computes so many pairs of tiles.
constexpr double start_forward = 1, start_gradient = 0.5;

int64_t tiles_along(int64_t n, int64_t size) { return (n + size - 1) / size; }

// Items of work as in src/devices/backend/cuda/attention_sm90_*.h. cuDNN's, for heads of 128, are
// taken to be alike.
struct Tiles {
  const AttentionShape& s;

  int64_t size() const { return s.gradient ? (s.head_dim > 64 ? 64 : 128) : (s.head_dim > 64 ? 128 : 192); }
  int64_t queries() const { return tiles_along(s.queries, size()); }
  int64_t keys() const { return tiles_along(s.keys, tile_keys); }
  int64_t group() const { return s.heads / s.kv_heads; }

  // The place of a query in its sequence. The first of several ranks has the first and the last
  // chunk; others have as much work.
  int64_t place(int64_t query) const {
    query = std::clamp<int64_t>(query, 0, s.queries - 1);
    return query < s.queries / 2 || s.queries == s.keys ? query : query + s.keys - s.queries;
  }
  // The first query of a tile. Forward, the last tile is full.
  int64_t begin(int64_t tile) const {
    const int64_t before = s.gradient ? 0 : queries() * size() - tiles_along(s.queries, 64) * 64;
    return tile * size() - before;
  }
  // Tiles of keys seen by a tile of queries.
  int64_t seen(int64_t tile) const {
    const int64_t last = place(begin(tile + 1) - 1) / tile_keys;
    const int64_t first = s.window > 0 ? std::max<int64_t>(0, place(begin(tile)) - s.window + 1) / tile_keys : 0;
    return last - first + 1;
  }

  // The work of each item of a head in pairs of tiles, the longest first.
  std::vector<double> items() const {
    std::vector<double> list;
    if (!s.gradient) {
      for (int64_t t = queries() - 1; t >= 0; --t) list.push_back(double(seen(t)));
    } else {  // a tile of keys with all queries that see it
      list.assign(size_t(keys()) + 1, 0);
      for (int64_t t = 0; t < queries(); ++t) {
        const int64_t end = place(begin(t + 1) - 1) / tile_keys + 1;
        list[size_t(end - seen(t))] += double(group()), list[size_t(end)] -= double(group());
      }
      std::partial_sum(list.begin(), list.end(), list.begin());
      std::erase(list, 0.0);  // behind the last, and keys that no query sees
    }
    for (double& item : list) item += s.gradient ? start_gradient : start_forward;
    std::sort(list.begin(), list.end(), std::greater<>());
    return list;
  }
};

// The time of the multiprocessor with the most work over the mean. in_turns: blocks take items
// there and back again. Else each takes the next one when it is done.
double longest_over_mean(const std::vector<double>& items, int64_t heads, bool in_turns, int64_t multiprocessors) {
  const int64_t count = int64_t(items.size()) * heads;
  double sum = 0;
  for (double item : items) sum += item * double(heads);
  std::vector<double> busy(size_t(multiprocessors), 0);
  std::priority_queue<double, std::vector<double>, std::greater<>> next(std::greater<>(), busy);
  for (int64_t i = 0; i < count; ++i) {
    const double work = items[size_t(i / heads)];
    if (in_turns) {
      const int64_t at = i % multiprocessors, round = i / multiprocessors;
      busy[size_t(round % 2 ? multiprocessors - 1 - at : at)] += work;
    } else {
      busy[0] = next.top() + work, next.pop(), next.push(busy[0]);
    }
  }
  double longest = in_turns ? *std::max_element(busy.begin(), busy.end()) : 0;
  for (; !in_turns && !next.empty(); next.pop()) longest = next.top();
  return longest * double(multiprocessors) / sum;
}

double pairs_of(const AttentionShape& s) {
  const double t = double(s.keys), hidden = s.window > 0 ? t - double(s.window) : 0;
  return (t * (t + 1) - hidden * (hidden + 1)) / 2 * double(s.queries) / t;
}

}  // namespace

AttentionShape tiled_attention(const ProfileInstr& row) {
  const std::string_view kernel = row.kernel;
  const bool tiled = kernel.starts_with("cuda.attention") &&
                     (kernel.find(".sm90.") != std::string_view::npos || kernel.ends_with(".cudnn"));
  AttentionShape shape = tiled ? row.attention : AttentionShape();
  if (kernel.ends_with(".cudnn")) shape.kv_heads = shape.heads;  // it does not share tiles of keys
  return shape;
}

double tile_factor(const AttentionShape& s, int64_t multiprocessors) {
  if (!s.known()) return 1;
  const Tiles tiles{s};
  const std::vector<double> items = tiles.items();
  double pairs = 0;
  for (double item : items) pairs += item * double(tiles.size() * tile_keys);
  const double whole = pairs / (pairs_of(s) * double(s.gradient ? tiles.group() : 1));
  const int64_t heads = s.batch * (s.gradient ? s.kv_heads : s.heads);
  if (multiprocessors <= 0 || int64_t(items.size()) * heads > many_rounds * multiprocessors) return whole;
  const bool in_turns =
      !s.gradient && s.head_dim <= 64 && int64_t(items.size()) * heads <= most_turns * multiprocessors;
  const double over = longest_over_mean(items, heads, in_turns, multiprocessors) - 1;
  return whole * (1 + (s.gradient ? idle_gradient : idle_forward) * over);
}

}  // namespace crest
