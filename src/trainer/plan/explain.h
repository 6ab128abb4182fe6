// The calculators of crest plan --explain: published formulas with their terms, the exact figure
// from the recipe's Program, and the reason for the difference.
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

// A result: "18 N" with "18 x 124439808" = 2239916544 bytes.
struct Term {
  std::string name;
  std::string formula, numbers;
  double value = 0;
  std::string unit;               // "bytes", "FLOP", or the counted thing
  std::string source;             // the formula's publication
  std::optional<double> program;  // the Program's figure; none: it has none
  std::string difference;         // why the Program differs, or the parts missing in the formula
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
  int64_t beams = 4;  // for beam search
  double tokens = 0;  // for the whole training; 0: unknown
  int64_t limit = 0;  // bytes of a device
};

// Moves --mesh out of the flags, for commands with formulas only. Usage error for an axis without
// formulas.
Mesh take_explained_mesh(GivenSettings& recipe);
// {data, tensor, pipeline}.
nlohmann::ordered_json explained_mesh_json(const Mesh& mesh);

extern const std::vector<std::string> explain_topics;  // memory, flops, batch, traffic

// The session must be crest train's, with updates and validation. Usage error for an unknown topic.
Explanation explain(const std::string& topic, const CompiledSession& session, const ExplainOptions& options);

// docs/reference/contract.md, plan.
nlohmann::ordered_json to_json(const Explanation& explanation);

// explain_*.cpp
Explanation explain_memory(const CompiledSession&, const ExplainOptions&);
Explanation explain_flops(const CompiledSession&, const ExplainOptions&);
Explanation explain_batch(const CompiledSession&, const ExplainOptions&);
Explanation explain_traffic(const CompiledSession&, const ExplainOptions&);

// Bytes of a step's gradients, and of the weights in the model's dtype.
int64_t gradient_bytes(const CompiledSession& session);
int64_t weight_bytes(const CompiledSession& session);
// Bytes of one element of an activation.
int64_t activation_bytes(const Recipe& recipe);

}  // namespace crest
