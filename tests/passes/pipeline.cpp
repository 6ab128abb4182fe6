#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "passes/pass.h"
#include "program/op.h"
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

Program built_by_pipeline(const Recipe& r, ProgramKind kind, bool first = true, bool last = true) {
  Program p = build_model(r.model, {kind, r.batch, r.seq_length(), 32});
  run_passes(p, {r, kind, first, last});
  return p;
}

}  // namespace

TEST(Pipeline, EverySettingGivesAProgramThatVerifiesAndParsesBack) {
  for (std::string precision : {"fp32", "bf16", "fp16"})
    for (std::string policy : {"pure", "autocast"})
      for (std::string attention : {"flash", "naive"})
        for (std::string fusion : {"on", "off"})
          for (std::string recompute : {"none", "activation", "selective", "full"})
            for (bool llama : {false, true})
              for (double dropout : {0.0, 0.1})
                for (int variant = 0; variant < 3; ++variant) {
                  // Half of all: any five of the six stand in every combination.
                  const bool choices[] = {policy == "pure",
                                          attention == "flash",
                                          fusion == "on",
                                          recompute == "activation" || recompute == "full",
                                          llama,
                                          dropout > 0};
                  if (std::count(std::begin(choices), std::end(choices), true) % 2) continue;
                  Recipe r = tiny();
                  if (llama) r.model = load_model_config("llama-nano"), r.model.layers = 2, r.model.vocab = 257;
                  r.precision = precision, r.policy = policy, r.attention = attention, r.fusion = fusion;
                  r.recompute = recompute, r.model.dropout = dropout, r.grad_accumulation = variant ? 3 : 1;
                  r.data_parallel = variant == 2 ? 2 : 1;
                  for (auto kind :
                       {ProgramKind::train, ProgramKind::update, ProgramKind::validation, ProgramKind::decode}) {
                    SCOPED_TRACE(precision + " " + policy + " " + attention + " " + fusion + " " + recompute);
                    Program p = built_by_pipeline(r, kind, variant != 2, variant != 1);
                    std::string text = print(p);
                    Program q = parse_program(text, "test");
                    ASSERT_EQ(print(q), text);
                    verify(q, "parse");
                  }
                }
}

namespace {

// Names of the values with a pitch.
std::vector<std::string> pitched(ProgramKind kind, const PassContext& like) {
  Recipe r = tiny();
  r.pad_vocab = 1;
  Program p = build_model(r.model, {kind, r.batch, r.seq_length(), 32});
  run_passes(p, {r, kind, true, true, like.kernel_for, like.row_alignment});
  std::vector<std::string> names;
  for (auto& v : p.values)
    if (!v.contiguous() && v.pitch() > 0) names.push_back(v.name);
  return names;
}

}  // namespace

TEST(RowPitch, NeedsAKernelForEveryInstruction) {
  using Names = std::vector<std::string>;
  const Recipe any;
  PassContext context = {any, ProgramKind::train};
  EXPECT_EQ(pitched(ProgramKind::train, context), Names()) << "no alignment is better than another";
  context.row_alignment = 16;
  EXPECT_EQ(pitched(ProgramKind::train, context), (Names{"lm_head.linear", "loss.cross_entropy_grad"}));
  EXPECT_EQ(pitched(ProgramKind::validation, context), (Names{"lm_head.linear"}));
  EXPECT_EQ(pitched(ProgramKind::prefill, context), Names()) << "the host reads the logits";
  // linear_dw has no kernel for such rows: its operand stays contiguous, the logits do not.
  context.kernel_for = [](const Program& p, const Instr& i) {
    bool pitch = false;
    for (ValueId v : i.in) pitch |= v != no_value && !p.at(v).contiguous();
    return pitch && i.op->name == std::string("linear_dw") ? "" : "a kernel";
  };
  EXPECT_EQ(pitched(ProgramKind::train, context), (Names{"lm_head.linear"}));
}
