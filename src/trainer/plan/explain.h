// The calculators behind crest plan --explain: the field's formulas with their terms, the exact
// need of the Program of the same recipe, and the reason for the difference.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/compile.h"
#include "program/mesh.h"
#include "settings/settings.h"

namespace crest {

// A result: "18 N" with "18 x 124439808" is 2239916544 bytes.
struct Term {
  std::string name;
  std::string formula, numbers;
  double value = 0;
  std::string unit;               // "bytes", "FLOP", or the counted thing
  std::string source;             // of the formula
  std::optional<double> program;  // the same, of the Program; none: it has no such quantity
  std::string difference;         // why the Program's differs; or the parts left out by the formula
};

struct ExplainSection {
  std::string title;
  std::vector<Term> terms;
};

struct Explanation {
  std::string topic;
  std::vector<ExplainSection> sections;
};

struct ExplainOptions {
  Mesh mesh;
  int64_t beams = 4;  // of a beam search
  double tokens = 0;  // of a whole training; 0: not given
  int64_t limit = 0;  // bytes of a device
};

// Takes --mesh out of the given flags, for commands that only calculate with it. Usage error for an
// axis without formulas.
Mesh take_explained_mesh(GivenSettings& recipe);
// {data, tensor, pipeline}.
nlohmann::ordered_json explained_mesh_json(const Mesh& mesh);

extern const std::vector<std::string> explain_topics;  // memory, flops, batch, traffic

// The session of crest train: with updates and validation. Usage errors for an unknown topic.
Explanation explain(const std::string& topic, const CompiledSession& session, const ExplainOptions& options);

// docs/reference/contract.md, plan.
nlohmann::ordered_json to_json(const Explanation& explanation);

// explain_*.cpp
Explanation explain_memory(const CompiledSession&, const ExplainOptions&);
Explanation explain_flops(const CompiledSession&, const ExplainOptions&);
Explanation explain_batch(const CompiledSession&, const ExplainOptions&);
Explanation explain_traffic(const CompiledSession&, const ExplainOptions&);

// Bytes of all gradients of a step, and of all weights as the model reads them.
int64_t gradient_bytes(const CompiledSession& session);
int64_t weight_bytes(const CompiledSession& session);
// Bytes of an activation's element.
int64_t activation_bytes(const Recipe& recipe);

}  // namespace crest
