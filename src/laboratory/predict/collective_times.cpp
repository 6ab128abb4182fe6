#include "predict/collective_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "core/error.h"

namespace crest {

using Json = nlohmann::ordered_json;

const std::vector<Collective> step_collectives = {Collective::all_reduce, Collective::all_gather,
                                                  Collective::reduce_scatter};
const std::vector<Collective> table_collectives = {Collective::all_reduce, Collective::all_gather,
                                                   Collective::reduce_scatter, Collective::send_receive};

double CollectiveTable::seconds(double bytes) const {
  if (bytes <= points.front().bytes) return points.front().seconds;
  size_t right = 1;
  while (right + 1 < points.size() && points[right].bytes < bytes) ++right;
  const TransferPoint &a = points[right - 1], &b = points[right];
  auto slope = [](const TransferPoint& from, const TransferPoint& to) {
    return (to.seconds - from.seconds) / (to.bytes - from.bytes);
  };
  // Noise may make the larger of two sizes look faster. Then sizes between them take the smaller
  // one's time, and sizes beyond the last follow the mean slope of all, if it is steeper.
  if (bytes <= b.bytes) return a.seconds + std::max(0.0, slope(a, b)) * (bytes - a.bytes);
  return b.seconds + std::max({0.0, slope(a, b), slope(points.front(), b)}) * (bytes - b.bytes);
}

void CollectiveTimes::add(CollectiveTable table) {
  auto what = [](const CollectiveTable& t) { return std::tuple(t.collective, t.ranks, t.dtype); };
  std::erase_if(tables_, [&](auto& t) { return what(t) == what(table); });
  tables_.push_back(std::move(table));
}

bool CollectiveTimes::covers(int ranks, bool nearby) const {
  return std::all_of(step_collectives.begin(), step_collectives.end(), [&](Collective c) {
    const CollectiveTable* t = find(c, ranks, "fp32");
    return t && (nearby || t->ranks == ranks);
  });
}

const CollectiveTable* CollectiveTimes::find(Collective collective, int ranks, const std::string& dtype) const {
  const CollectiveTable* best = nullptr;
  auto cost = [&](const CollectiveTable& t) {
    return std::tuple(std::abs(std::log(double(t.ranks) / ranks)), -t.ranks, t.dtype != dtype);
  };
  for (auto& t : tables_)
    if (t.collective == collective && (!best || cost(t) < cost(*best))) best = &t;
  return best;
}

Json CollectiveTimes::to_json() const {
  Json list = Json::array();
  for (auto& t : tables_) {
    Json points = Json::array();
    for (auto& p : t.points) points.push_back({p.bytes, p.seconds * 1e3});
    list.push_back({{"collective", name(t.collective)},
                    {"ranks", t.ranks},
                    {"dtype", t.dtype},
                    {"library", t.library},
                    {"date", t.date},
                    {"crest_version", t.crest_version},
                    {"bytes_and_ms", points}});
  }
  return list;
}

CollectiveTimes CollectiveTimes::from_json(const Json& json, const std::string& where) {
  auto wrong = [&](const std::string& what) {
    fail("not a calibration: " + what, where, "Measure again: crest calibrate --ranks N.");
  };
  auto text = [&](const Json& object, const char* key) {
    auto it = object.find(key);
    if (it == object.end() || !it->is_string() || it->get_ref<const std::string&>().empty())
      wrong(fmt::format("'{}' of a collective is not a text", key));
    return it->get<std::string>();
  };
  CollectiveTimes times;
  if (!json.is_array()) wrong("'collectives' is not a list");
  for (auto& entry : json) {
    if (!entry.is_object()) wrong("a collective is not an object");
    CollectiveTable t;
    std::string called = text(entry, "collective");
    auto known = std::find_if(table_collectives.begin(), table_collectives.end(),
                              [&](Collective c) { return called == name(c); });
    if (known == table_collectives.end()) wrong("a collective has an unknown name");
    t.collective = *known;
    t.dtype = text(entry, "dtype"), t.library = text(entry, "library");
    t.date = text(entry, "date"), t.crest_version = text(entry, "crest_version");
    auto ranks = entry.find("ranks");
    if (ranks == entry.end() || !ranks->is_number_integer() || *ranks < 2 || *ranks > 4096)
      wrong("the ranks of a collective are not a number from 2 to 4096");
    t.ranks = *ranks;
    auto points = entry.find("bytes_and_ms");
    if (points == entry.end() || !points->is_array() || points->size() < 2)
      wrong("a collective has fewer than two sizes");
    for (auto& p : *points) {
      if (!p.is_array() || p.size() != 2 || !p[0].is_number() || !p[1].is_number())
        wrong("a size of a collective is not two numbers");
      TransferPoint point{p[0].get<double>(), p[1].get<double>() / 1e3};
      double before = t.points.empty() ? 0 : t.points.back().bytes;
      if (!(point.bytes > before) || !(point.bytes < 1e18) || !(point.seconds > 0) || !(point.seconds < 1e9))
        wrong("sizes and times of a collective are not positive and ascending");
      t.points.push_back(point);
    }
    times.add(std::move(t));
  }
  return times;
}

}  // namespace crest
