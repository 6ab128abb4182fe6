// The tiny models for tests of passes: their Programs are rewritten, printed and run.
#pragma once
#include <algorithm>
#include <string>

#include "passes/pass.h"

namespace crest::test {

// One layer, width 8, two heads, 11 tokens padded to 16, batch 2, 4 tokens: a person can read the
// whole Program.
inline Recipe tiny_recipe(bool llama = false) {
  Recipe r;
  r.model = load_model_config(llama ? "llama-nano" : "nano");
  r.model.name = llama ? "tiny-llama" : "tiny";
  r.model.layers = 1, r.model.width = 8, r.model.heads = 2, r.model.kv_heads = llama ? 1 : 2, r.model.head_dim = 4;
  r.model.ff = llama ? 12 : 16, r.model.vocab = 11, r.model.context = 4, r.model.dropout = 0;
  r.batch = 2, r.seq = 4, r.pad_vocab = 16;
  r.precision = "fp32", r.fusion = "off";
  return r;
}

// Four heads; of the llama, two share keys.
inline Recipe tensor_recipe(bool llama) {
  Recipe r = tiny_recipe(llama);
  r.model.heads = 4, r.model.kv_heads = llama ? 2 : 4, r.model.head_dim = 2, r.model.ff = 16;
  return r;
}

inline Program forward_program(const Recipe& r, ProgramKind kind) {
  return build_model(r.model, {kind, r.batch, r.seq_length(), r.model.context});
}

// An update after all passes.
inline Program update_program(const Recipe& r) {
  Program p = forward_program(r, ProgramKind::update);
  run_passes(p, {r, ProgramKind::update, true, true});
  return p;
}

// Number of a pass in the pipeline.
inline size_t pass_index(const std::string& name) {
  auto& all = pipeline();
  return size_t(std::find_if(all.begin(), all.end(), [&](auto& p) { return name == p.name; }) - all.begin());
}

}  // namespace crest::test
