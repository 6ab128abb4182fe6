// Models, memory plans and compiled Programs as JSON, for commands and records.
// docs/reference/contract.md lists the keys.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "plan/compile.h"
#include "plan/memory_plan.h"

namespace crest {

// A model's sizes (keys as in its TOML file) and number of parameters.
nlohmann::ordered_json model_to_json(const ModelConfig& model);

// {"weights": bytes, ...}: all categories.
nlohmann::ordered_json categories_to_json(const CategoryBytes& bytes);

// Blocks of one name and size: one value, or the workspaces of one operation.
struct BlockRow {
  Block block;  // first and last: of all
  int64_t count = 1;
};
// The largest blocks of the Program with the largest transient arena.
std::vector<BlockRow> largest_blocks(const CompiledSession& session, int rows);

// planned_bytes, persistent_bytes, transient_bytes, host_bytes, ranks, by_category, peak,
// largest_blocks (docs/reference/contract.md, plan).
nlohmann::ordered_json memory_to_json(const CompiledSession& session, int blocks);
// [{name, instructions, transient_bytes}]
nlohmann::ordered_json programs_to_json(const CompiledSession& session);

// The document "plan" of a RunRecord: {model, memory, programs}.
nlohmann::ordered_json plan_document(const CompiledSession& session);

// A compiled Program as one document: values, instructions (cost, kernel, addresses), memory plan
// and pass times.
std::string program_json(const CompiledProgram& program);

}  // namespace crest
