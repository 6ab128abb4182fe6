#include <gtest/gtest.h>

#include "passes/pass.h"
#include "program/text.h"
#include "program/verify.h"

using namespace crest;

namespace {

Recipe tiny() {
  Recipe r;
  r.model = load_model_config("nano");
  r.model.layers = 2;
  r.model.vocab = 257;
  r.batch = 2, r.seq = 16;
  r.precision = "fp32";
  return r;
}

Program built(const Recipe& r, ProgramKind kind, bool first = true, bool last = true) {
  Program p = build_model(r.model, {kind, r.batch, r.seq_length(), 32});
  run_passes(p, {r, kind, first, last});
  return p;
}

}  // namespace

TEST(Pipeline, EveryLeverGivesAProgramThatVerifiesAndParsesBack) {
  for (std::string precision : {"fp32", "bf16", "fp16"})
    for (std::string policy : {"pure", "autocast"})
      for (std::string attention : {"flash", "naive"})
        for (std::string fusion : {"on", "off"})
          for (std::string recompute : {"none", "activation", "selective", "full"})
            for (bool llama : {false, true})
              for (double dropout : {0.0, 0.1})
                for (int variant = 0; variant < 3; ++variant) {
                  Recipe r = tiny();
                  if (llama) r.model = load_model_config("llama-nano"), r.model.layers = 2, r.model.vocab = 257;
                  r.precision = precision, r.policy = policy, r.attention = attention, r.fusion = fusion;
                  r.recompute = recompute, r.model.dropout = dropout, r.grad_accumulation = variant ? 3 : 1;
                  r.data_parallel = variant == 2 ? 2 : 1;
                  for (auto kind :
                       {ProgramKind::train, ProgramKind::update, ProgramKind::validation, ProgramKind::decode}) {
                    SCOPED_TRACE(precision + " " + policy + " " + attention + " " + fusion + " " + recompute);
                    Program p = built(r, kind, variant != 2, variant != 1);
                    std::string text = print(p);
                    Program q = parse_program(text, "test");
                    ASSERT_EQ(print(q), text);
                    verify(q, "parse");
                  }
                }
}
