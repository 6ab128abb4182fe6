#include "plan/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace crest {

using Json = nlohmann::ordered_json;

const std::vector<std::string> explain_topics = {"memory", "flops", "batch", "traffic"};

Mesh take_explained_mesh(GivenSettings& recipe) {
  std::vector<std::string> texts = std::exchange(recipe["mesh"], {});
  return parse_mesh(texts.empty() ? "" : texts.back());
}

Json explained_mesh_json(const Mesh& mesh) {
  Json json;
  for (Axis axis : {Axis::data, Axis::tensor, Axis::pipeline, Axis::context})
    json[std::string(name(axis))] = mesh.size(axis);
  return json;
}

Explanation explain(const std::string& topic, const CompiledSession& session, const ExplainOptions& o) {
  if (topic == "memory") return explain_memory(session, o);
  if (topic == "flops") return explain_flops(session, o);
  if (topic == "batch") return explain_batch(session, o);
  if (topic == "traffic") return explain_traffic(session, o);
  fail_usage(fmt::format("'{}' is not a value of --explain", printable(topic)), "--explain",
             fmt::format("{} Values: {}.", did_you_mean(topic, explain_topics), join(explain_topics, ", ")));
}

int64_t gradient_bytes(const CompiledSession& s) {
  int64_t bytes = 0;
  for (auto& b : s.gradients) bytes += b.bytes;
  for (auto& b : s.persistent)
    if (b.category == Category::gradients) bytes += b.bytes;
  return bytes;
}

int64_t weight_bytes(const CompiledSession& s) {
  int64_t bytes = 0;
  for (auto& b : s.persistent)
    if (b.category == Category::weights) bytes += b.bytes;
  return bytes;
}

// fp8 concerns operands of linear layers only. Tensors between instructions are bf16.
int64_t activation_bytes(const Recipe& r) {
  return r.precision == "bf16" || r.precision == "fp16" || r.precision == "fp8" ? 2 : 4;
}

Json to_json(const Explanation& e) {
  Json sections = Json::array();
  for (auto& s : e.sections) {
    Json terms = Json::array();
    for (auto& t : s.terms)
      terms.push_back({{"name", t.name},
                       {"formula", t.formula},
                       {"numbers", t.numbers},
                       {"value", t.value},
                       {"unit", t.unit},
                       {"source", t.source},
                       {"program", t.program ? Json(*t.program) : Json()},
                       {"difference", t.difference}});
    sections.push_back({{"title", s.title}, {"terms", terms}});
  }
  return {{"topic", e.topic}, {"sections", sections}};
}

}  // namespace crest
