// The terminal output of profiles: a GPU's, an empty one, one with hostile names.
#include "profile/profile_text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "terminal/table.h"

namespace crest::test {

namespace {

// A layer's product and norm, as a GPU would tell them.
Profile gpu_profile() {
  Profile p;
  p.recipe = {{"model", "tiny"}, {"precision", "bf16"}, {"batch", 4}, {"seq", 8}, {"grad_accumulation", 2}};
  p.device = {{"name", "a GPU"}};
  p.method = "cupti";
  p.tokens = 64, p.model_flops = 1e9;
  p.step_ms = {10, 10, 10}, p.profiled_ms = {11, 11, 11}, p.throttled = {0, 1, 0}, p.throttle_reasons = {"power_cap"};
  p.kept_ms = 11, p.span_ms = 9, p.busy_ms = 8.5, p.idle_ms = 0.5, p.launches = 4;
  p.rates = {{"bf16", 1e12, "measured"}, {"bandwidth", 1e11, "measured"}};
  p.calls = {"train", "train"};
  for (int i = 0; i < 2; ++i) {
    ProfileInstr r;
    r.program = "train", r.index = i, r.op = i ? "norm" : "linear", r.kernel = i ? "cuda.norm" : "cuda.linear.cublaslt";
    r.phase = "forward", r.stream = "compute", r.op_class = i ? "normalization" : "contraction", r.layer = 0;
    r.scopes = {i ? "h.0.ln_1" : "h.0.attn.qkv"}, r.type = "bf16[4,8]", r.arithmetic = "bf16", r.calls = 2;
    r.flops = i ? 0 : 6e9, r.bytes = 1e7, r.ms = i ? 2 : 6, r.floor_ms = i ? 0.1 : 5.9;
    p.instrs.push_back(r);
  }
  p.kernels = {{"void crest::cuda::(anonymous namespace)::norm_rows<float>(Params)", 1, 2, 2, 1, 1},
               {"nvjet_tst_128x256", 0, 2, 6, 3, 3}};
  p.intervals = {{0, 1, 0, 7, 0, 3}, {1, 0, 0, 7, 3, 1}, {0, 1, 1, 7, 4.5, 3}, {1, 0, 1, 7, 8, 1}};
  p.memory.planned_bytes = 3 << 20, p.memory.persistent_bytes = 1 << 20, p.memory.transient_bytes = 2 << 20;
  p.memory.persistent = {{"weights", "weights", 0, 1 << 20}};
  p.memory.blocks = {{"x", "train", "activations", "forward", "h.0.attn.qkv", 0, 0, 2 << 20, 0, 1}};
  return p;
}

std::string all_text(const Profile& p, const ProfileView& view = {}) {
  return profile_head(p, view) + profile_times(p, view) + profile_table(p, view) + profile_summary(p, view) +
         profile_memory(p, view);
}

void expect_has(const std::string& text, const std::vector<std::string>& said) {
  for (auto& s : said) EXPECT_NE(text.find(s), std::string::npos) << s << " in\n" << text;
}

}  // namespace

TEST(ProfileText, SaysWhatMatters) {
  std::string text = all_text(gpu_profile());
  expect_has(
      text, {"tiny, phase step, on a GPU", "2 micro steps", "overhead +10.0%", "explained 90.0%", "off by more than 2%",
             "throttled during 1 of 3 runs (power_cap)", "CUPTI", "cuda.linear.cublaslt forward h.*.attn.qkv",
             "norm_rows<float>", "nvjet_tst_128x256", "device kernel", "1 layer, ", "75.0% of instruction time",
             "in 2 gaps", "the largest 500.0 us", "3.00 MiB in call 1 of 2, train[0]"});
  EXPECT_EQ(text.find("J/token"), std::string::npos) << text;
  Profile measured = gpu_profile();
  measured.power_w = 512;
  expect_has(all_text(measured), {"power     512 W, 0.08 J/token\n"});
  EXPECT_EQ(text.find("anonymous"), std::string::npos) << text;
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
}

// Tensor ranks share the tokens of a data rank.
TEST(ProfileText, CountsDataRanks) {
  Profile p = gpu_profile();
  p.recipe["ranks"] = 4;
  expect_has(all_text(p), {" x 4 ranks; times"});
  p.recipe["mesh"] = "data=2,tensor=2";
  expect_has(all_text(p), {" x 2 data ranks; 4 ranks (data=2,tensor=2), times"});
  p.recipe["mesh"] = "tensor=4";
  const std::string text = all_text(p);
  expect_has(text, {"4 ranks (tensor=4), times"});
  EXPECT_EQ(text.find("x 4"), std::string::npos) << text;
}

TEST(ProfileText, NoLineIsWiderThanTheView) {
  Profile p = gpu_profile();
  p.instrs[0].scopes = {"h.0.attn.qkv+h.0.attn.proj+h.0.mlp.fc+h.0.mlp.act+h.0.mlp.proj+h.0.ln_1+h.0.ln_2"};
  p.memory.blocks[0].name = "a block whose name is as long as the names of fused results can become";
  for (int width : {100, 80}) {
    ProfileView view;
    view.width = width;
    std::string text = all_text(p, view);
    for (auto& line : split(text, '\n')) EXPECT_LE(display_width(line), size_t(width)) << line;
    expect_has(text, {"tokens/s", "gap ms", "FLOP/s", "cuda.linear.cublaslt forward"});
  }
}

TEST(ProfileText, OrdersAndGroups) {
  Profile p = gpu_profile();
  ProfileView view;
  EXPECT_EQ(profile_shares(p, view)[0].key, "cuda.linear.cublaslt forward h.*.attn.qkv");
  view.sort = "gap";
  EXPECT_EQ(profile_shares(p, view)[0].key, "cuda.norm forward h.*.ln_1");
  view.by = "kernel";
  EXPECT_EQ(profile_shares(p, view)[0].key.rfind("void crest", 0), 0u);
  view.sort = "flops";
  EXPECT_EQ(profile_shares(p, view)[0].key, "nvjet_tst_128x256");
  view.by = "instruction";
  EXPECT_EQ(profile_shares(p, view)[0].key, "train[0] cuda.linear.cublaslt forward h.0.attn.qkv bf16[4,8]");
  view.top = 1;
  expect_has(profile_table(p, view), {"and 1 more with 2.000 ms (25.0%)"});
  view.by = "hue";
  EXPECT_THROW(profile_shares(p, view), Error);
  view.by = "class", view.sort = "size";
  EXPECT_THROW(profile_shares(p, view), Error);
}

// A profile may come from a stranger, so its text is escaped before it reaches the terminal.
TEST(ProfileText, NamesCannotControlTheTerminal) {
  Profile p = gpu_profile();
  p.recipe["model"] = "\x1b[2Jboo";
  p.recipe["batch"] = {{"deep", "\x1b]0;x\x07"}};
  p.device["name"] = "\x1b[31m";
  p.instrs[0].kernel = "\x1b[2J", p.instrs[0].scopes = {"h.0.\x1b[2J"}, p.instrs[0].op_class = "\x1b[5m";
  p.instrs[0].phase = "\x1b[7m";
  p.kernels[0].name = "\x1b[2Jkernel", p.throttle_reasons = {"\x1b[2J"}, p.rates[0].name = "\x1b[2J";
  p.memory.blocks[0].name = "\x1b[2J", p.memory.blocks[0].phase = "\x1b[2J";
  p.phase = "\x1b[2J";
  std::string text = all_text(p);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
}

TEST(ProfileText, AnEmptyProfileHasAnAnswerToEverything) {
  EXPECT_FALSE(all_text(Profile()).empty());
  EXPECT_EQ(profile_alternatives(Profile(), {}, 1, {}), "");
}

TEST(ProfileText, AlternativesSayWhatTheySaveAndCost) {
  std::string text = profile_alternatives(gpu_profile(), {{"--recompute full", 2 << 20, 1.25}}, 1, {});
  expect_has(text, {"--recompute full", "2.00 MiB", "1.00 MiB", "33.3%", "+25.0%"});
}

}  // namespace crest::test
