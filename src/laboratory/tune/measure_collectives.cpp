#include "tune/measure_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "host/environment.h"
#include "host/own_process.h"

namespace crest {

using Json = nlohmann::ordered_json;

namespace {

// The document of crest comm. Removes sizes from the end of the list until they fit.
Json run_comm(const CollectivesToMeasure& what, const std::vector<Collective>& collectives, const std::string& dtype,
              std::vector<int64_t> sizes) {
  for (;;) {
    std::vector<std::string> arguments = {"comm"}, ranks, bytes;
    for (Collective c : collectives) arguments.emplace_back(name(c));
    for (int n : what.ranks) ranks.push_back(std::to_string(n));
    for (int64_t n : sizes) bytes.push_back(std::to_string(n));
    for (auto& flag :
         {std::string("--json"), std::string("--no-store"), "--world-sizes=" + join(ranks, ","),
          "--sizes=" + join(bytes, ","), "--dtype=" + dtype, fmt::format("--max-seconds={}", what.max_seconds)})
      arguments.push_back(flag);
    arguments.insert(arguments.end(), what.flags.begin(), what.flags.end());
    try {
      return run_own_process(arguments);
    } catch (const Error& e) {
      if (e.code() != Exit::does_not_fit || sizes.size() < 2) throw;
      sizes.pop_back();
    }
  }
}

}  // namespace

std::vector<int64_t> collective_sizes(bool gpus) {
  if (gpus) return {64'000, 1'000'000, 8'000'000, 64'000'000, 256'000'000, 1'000'000'000};
  return {4'000, 64'000, 1'000'000, 8'000'000, 32'000'000};
}

std::vector<CollectiveTable> measure_collectives(const CollectivesToMeasure& what,
                                                 const std::function<void(const std::string&)>& say) {
  std::vector<CollectiveTable> tables;
  std::vector<std::string> numbers;
  for (int n : what.ranks) numbers.push_back(std::to_string(n));
  for (auto& dtype : what.dtypes) {
    std::vector<Collective> collectives = table_collectives;
    // The others move bytes of any type.
    if (dtype != what.dtypes.front()) collectives = {Collective::all_reduce, Collective::reduce_scatter};
    say(fmt::format("measuring collectives of {} between {} ranks ...", dtype, join(numbers, ", ")));
    Json document = run_comm(what, collectives, dtype, what.sizes);
    for (auto& group : document.at("groups")) {
      CollectiveTable t;
      std::string called = group.at("collective");
      t.collective = *std::find_if(collectives.begin(), collectives.end(), [&](auto c) { return called == name(c); });
      t.ranks = group.at("ranks"), t.dtype = dtype;
      t.library = document.at("library"), t.date = utc_now(), t.crest_version = read_environment().crest_version;
      // The latency is for one element a rank, as in the smallest calls of a step.
      bool parts = t.collective == Collective::all_gather || t.collective == Collective::reduce_scatter;
      int64_t element = dtype == "fp32" ? 4 : 2;
      t.points.push_back({double(element * (parts ? t.ranks : 1)), group.at("latency_ms").get<double>() / 1e3});
      for (auto& row : document.at("rows"))
        if (row.at("collective") == called && row.at("ranks") == t.ranks)
          t.points.push_back({row.at("bytes").get<double>(), row.at("ms_median").get<double>() / 1e3});
      tables.push_back(std::move(t));
    }
  }
  return tables;
}

}  // namespace crest
