// Plans of ranks on GPUs: NCCL's memory, and every way to sum.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "core/error.h"
#include "device.h"
#include "passes/stages.h"
#include "passes/tiny.h"
#include "plan/choose_kernels.h"
#include "plan/compile.h"
#include "plan/plan_report.h"
#include "plan/stage_model.h"
#include "plan/stage_plans.h"
#include "plan/what_fits.h"
#include "program/op.h"
#include "program/text.h"

using namespace crest;
using namespace crest::test;

namespace {

CompiledSession rank_session(const Recipe& r, const Device& device) {
  SessionUse use;
  use.train = use.update = true;
  return compile(r, device, session_programs(r, use));
}

}  // namespace

TEST(RanksOnGpus, TheLibraryIsARowOfThePlan) {
  Recipe one = tiny_recipe(false), two = one, threads = one;
  two.ranks = 2, threads.data_parallel = 2;
  auto library = [](const CompiledSession& s) { return s.by_category()[size_t(Category::library_context)]; };
  CompiledSession ranks = rank_session(two, emulated_gpu(1));
  EXPECT_GT(library(ranks), int64_t(100) << 20);
  EXPECT_EQ(ranks.planned_bytes(), ranks.persistent_bytes + ranks.transient_bytes + library(ranks));
  EXPECT_EQ(total(ranks.by_category()), ranks.planned_bytes());
  EXPECT_EQ(library(rank_session(one, emulated_gpu(1))), 0);
  EXPECT_EQ(library(rank_session(threads, emulated_gpu(1))), 0) << "virtual ranks need no library";
  EXPECT_EQ(library(rank_session(two, this_cpu(1))), 0);
  Recipe mesh = one;
  mesh.ranks = 4, mesh.mesh = {{Axis::data, 2}, {Axis::context, 2}};
  EXPECT_EQ(library(rank_session(mesh, emulated_gpu(1))), 2 * library(ranks)) << "all ranks, and those along context";
  // Stages also send to their neighbors: one of two, two of four.
  for (int stages : {2, 4}) {
    Recipe pipeline = one;
    pipeline.model.layers = 4, pipeline.ranks = 2 * stages;
    pipeline.mesh = {{Axis::data, 2}, {Axis::pipeline, stages}};
    const CompiledSession s = rank_session(pipeline, emulated_gpu(1));
    const CompiledSession inner = for_stage(s, stages / 2, {.verify = false});
    int64_t sum = 0;
    for (const CommunicatorMemory& c : inner.communicators) {
      sum += c.bytes;
      const bool sends = c.axes == Axes(Axis::pipeline);
      EXPECT_EQ(c.peers, sends ? stages / 2 : 0) << c.axes.text();
      EXPECT_EQ(c.bytes, library(ranks) + c.peers * (int64_t(448) << 20)) << c.axes.text();
      EXPECT_TRUE(!sends || c.ranks == stages) << c.ranks;
    }
    EXPECT_EQ(inner.communicators.size(), 3U) << "all ranks, data, pipeline";
    EXPECT_EQ(sum, library(inner));
  }
  EXPECT_THROW(check_fits(ranks, ranks.planned_bytes() - library(ranks)), Error) << "it needs memory";
}

// Stages of equal work differ by their slots, so one plan tells the bytes of all.
TEST(Stages, OfEqualWorkNeedOnePlan) {
  for (const char* schedule : {"1f1b", "zero-bubble"}) {
    Recipe r = tiny_recipe(false);
    r.model.layers = 12, r.ranks = 4, r.grad_accumulation = 8;
    r.mesh = {{Axis::pipeline, 4}};
    r.pass_settings["schedule-pipeline"] = schedule, r.pass_settings["stages"] = "3,3,3,3";
    const CompiledSession first = rank_session(r, emulated_gpu(1));
    const std::vector<CompiledSession> stages = distinct_stages(first, {.verify = false});
    ASSERT_EQ(stages.size(), 3U) << "the ends and the middle";
    for (int stage = 0; stage < 4; ++stage) {
      const CompiledSession& like = stages[stage == 0 ? 0 : stage == 3 ? 2 : 1];
      EXPECT_EQ(planned_bytes(like, stage), for_stage(first, stage, {.verify = false}).planned_bytes()) << schedule;
    }
    const PlanReport report = plan_report(first.recipe, emulated_gpu(1), {.train = true, .update = true}, 1 << 30);
    ASSERT_EQ(report.stages.size(), 4U);
    for (int stage = 0; stage < 4; ++stage)
      EXPECT_EQ(report.stages[size_t(stage)].planned_bytes, for_stage(first, stage, {.verify = false}).planned_bytes());
  }
}

// A process has a GPU of its own, and shares a host.
// A stage is compiled from a model of its layers only. Its Programs are those of the whole model,
// with dropout's numbers, shares of tensor and context ranks, and a tied embedding.
TEST(Stages, AreThoseOfTheWholeModel) {
  Recipe gpt = tiny_recipe(false);
  gpt.model.layers = 8, gpt.model.dropout = 0.1, gpt.grad_accumulation = 4;
  gpt.ranks = 2, gpt.mesh = {{Axis::pipeline, 2}};
  Recipe llama = tensor_recipe(true);
  llama.model.layers = 8, llama.model.tied = false, llama.grad_accumulation = 4;
  llama.ranks = 8, llama.mesh = {{Axis::data, 2}, {Axis::tensor, 2}, {Axis::pipeline, 2}};
  llama.pass_settings["schedule-pipeline"] = "interleaved:2";
  Recipe after = gpt;
  after.model.norm_position = NormPosition::after, after.model.context = after.seq = 8;
  after.ranks = 4, after.mesh = {{Axis::context, 2}, {Axis::pipeline, 2}};
  after.pass_settings["schedule-pipeline"] = "zero-bubble";
  const Device device = emulated_gpu(1);
  for (const Recipe& given : {gpt, llama, after}) {
    const Recipe r = resolve(given, device);
    SessionUse use;
    use.train = use.validation = true;
    for (ProgramSpec spec : session_programs(r, use))
      for (spec.stage = 0; spec.stage < 2; ++spec.stage)
        for (spec.chunk = 0; spec.chunk < chunks_of_rank(r); ++spec.chunk) {
          const PassContext context = pass_context(r, spec, device);
          Program whole = build_model(r.model, {spec.kind, spec.batch, spec.seq}), part = stage_model(r, spec);
          if (spec.kind == ProgramKind::train) {
            EXPECT_LT(part.code.size(), whole.code.size());
          }
          run_passes(whole, context), run_passes(part, context);
          EXPECT_EQ(print(part), print(whole)) << spec.name << " " << spec.stage << " " << spec.chunk;
        }
  }
}

TEST(RanksOnGpus, HaveTheMemoryOfOneEach) {
  Recipe r = tiny_recipe(false);
  r.ranks = 2;
  SessionUse use;
  use.train = use.update = true;
  int64_t limit = rank_session(r, emulated_gpu(1)).planned_bytes();
  EXPECT_TRUE(plan_report(r, emulated_gpu(1), use, limit).fits());
  EXPECT_GE(plan_report(r, emulated_gpu(1), use, limit).batch_that_fits, r.batch);
  EXPECT_FALSE(plan_report(r, emulated_gpu(1), use, limit - 1).fits());
  limit = 2 * rank_session(r, this_cpu(1)).planned_bytes();
  EXPECT_TRUE(plan_report(r, this_cpu(1), use, limit).fits());
  EXPECT_FALSE(plan_report(r, this_cpu(1), use, limit - 2).fits());
  r.ranks = 1, r.data_parallel = 2;
  limit = 2 * rank_session(r, emulated_gpu(1)).planned_bytes();
  EXPECT_TRUE(plan_report(r, emulated_gpu(1), use, limit).fits()) << "virtual ranks share a GPU";
  EXPECT_FALSE(plan_report(r, emulated_gpu(1), use, limit - 2).fits());
}

TEST(RanksOnGpus, EveryReductionHasItsKernels) {
  for (bool processes : {false, true})
    for (const char* reduce : {"flat", "each", "overlap", "bucket", "optimizer"}) {
      SCOPED_TRACE(reduce);
      Recipe r = tiny_recipe(false);
      r.fusion = "on";
      (processes ? r.ranks : r.data_parallel) = 2;
      if (std::string(reduce) == "optimizer")
        r.pass_settings["shard"] = reduce;
      else
        r.pass_settings["reduce"] = reduce, r.pass_settings["comm-dtype"] = "bf16";
      EXPECT_NO_THROW(rank_session(r, emulated_gpu(1)));
    }
}

// Copy engines move the shards of up to eight ranks while other work runs. The plan has memory for
// the addends that arrive at a time.
TEST(RanksOnGpus, CopyEnginesMoveShards) {
  Recipe r;
  r.model = *find_preset("gpt2-124M");
  r.batch = 1, r.seq = 64, r.precision = "fp32", r.fusion = "on";
  struct Case {
    int ranks;
    const char *shard, *reduce, *gather;
  };
  for (const Case& c : {Case{2, "optimizer", "flat", "update"},
                        {2, "optimizer", "bucket", "forward"},
                        {4, "weights", "bucket", "update"},
                        {16, "gradients", "bucket", "update"}}) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", c.ranks, c.shard, c.reduce, c.gather));
    r.ranks = c.ranks;
    r.pass_settings["shard"] = c.shard, r.pass_settings["reduce"] = c.reduce, r.pass_settings["gather"] = c.gather;
    const CompiledSession s = rank_session(r, emulated_gpu(1));
    const bool by_nccl = c.ranks > 8 || std::string_view(c.reduce) == "flat";
    int sums = 0, gathers = 0;
    for (auto& p : s.programs)
      for (size_t i = 0; i < p.program.code.size(); ++i) {
        const Instr& instr = p.program.code[i];
        const std::string_view op = instr.op->name;
        if (op != "all_gather" && op != "reduce_scatter") continue;
        ++(op == "all_gather" ? gathers : sums);
        EXPECT_TRUE(std::string_view(p.kernels[i]->name).ends_with(by_nccl ? "communicator" : "copy_engine"));
        if (op == "all_gather" || by_nccl) continue;
        const int64_t arrive = (c.ranks - 1) * p.program.at(instr.out[0]).bytes(), most = int64_t(128) << 20;
        ASSERT_GE(p.memory.block_of_instr[i], 0);
        const Block& block = p.memory.blocks[size_t(p.memory.block_of_instr[i])];
        EXPECT_LE(block.bytes, most);
        EXPECT_GE(block.bytes, std::min(arrive, most * 9 / 10));
        EXPECT_EQ(block.category, Category::comm_buffers);
      }
    EXPECT_GE(sums, 2);
    EXPECT_GE(gathers, 2);
    if (by_nccl) continue;
    CompiledSession two_streams = s;
    std::vector<Instr>& code = two_streams.programs[0].program.code;
    auto sum = std::find_if(code.begin(), code.end(),
                            [](auto& i) { return i.op->name == std::string_view("reduce_scatter"); });
    sum->stream = sum->stream == Stream::comm ? Stream::compute : Stream::comm;
    EXPECT_NO_THROW(copying_instructions(s, s.programs[0]));
    EXPECT_THROW(copying_instructions(two_streams, two_streams.programs[0]), Error);
  }
}

// Else the next kernel would take the memory and wait for the sum that it should hide.
TEST(RanksOnGpus, GradientsHoldTheirMemoryWhileTheyAreSummed) {
  Recipe r = tiny_recipe(false);
  r.model.layers = 6, r.ranks = 2, r.fusion = "on";
  r.pass_settings["shard"] = "optimizer", r.pass_settings["reduce"] = "bucket", r.pass_settings["bucket"] = "1kB";
  const CompiledSession s = rank_session(r, emulated_gpu(1));
  int sums = 0, longer = 0;
  for (auto& c : s.programs) {
    const std::vector<int> ends = ends_of_use(c.program);
    for (size_t i = 0; i < c.program.code.size(); ++i) {
      if (c.program.code[i].op->name != std::string_view("reduce_scatter")) continue;
      ++sums, longer += ends[i] > int(i) + 1;
      for (const Block& block : c.memory.blocks)
        EXPECT_TRUE(block.storage != c.program.code[i].in[0] || block.last >= ends[i]) << block.name;
    }
  }
  EXPECT_GE(sums, 6);
  EXPECT_GE(longer, sums / 2) << "the compute stream goes on";
}

// The best by measurement, unless something else is requested or the optimizer needs whole
// matrices.
TEST(RanksOnGpus, ShareTheOptimizerByDefault) {
  Recipe r = tiny_recipe(false);
  r.ranks = 2, r.fusion = "on";
  auto shard = [](const Recipe& recipe, const Device& device) {
    Recipe resolved = resolve(recipe, device);
    auto it = resolved.pass_settings.find("shard");
    return it == resolved.pass_settings.end() ? "none" : it->second;
  };
  EXPECT_EQ(shard(r, emulated_gpu(1)), "optimizer");
  EXPECT_EQ(shard(r, this_cpu(1)), "none");
  Recipe other = r;
  other.ranks = 1, other.data_parallel = 2;
  EXPECT_EQ(shard(other, emulated_gpu(1)), "none");
  for (auto [name, value] : {std::pair("reduce", "each"), {"comm-dtype", "bf16"}, {"shard", "none"}}) {
    other = r, other.pass_settings[name] = value;
    EXPECT_EQ(shard(other, emulated_gpu(1)), "none") << name;
  }
  other = r, other.optimizer = "muon";
  EXPECT_EQ(shard(other, emulated_gpu(1)), "none");
  EXPECT_NO_THROW(rank_session(other, emulated_gpu(1)));
}

TEST(RanksOnGpus, TwoTensorRanksOverlapRowsByDefault) {
  auto overlap = [](const Mesh& mesh, const Device& device, const char* given = nullptr) {
    Recipe r = tiny_recipe(false);
    r.model.layers = 2;
    r.ranks = mesh.ranks(), r.mesh = mesh;
    if (given) r.pass_settings["tensor-overlap"] = given;
    Recipe resolved = resolve(r, device);
    auto it = resolved.pass_settings.find("tensor-overlap");
    return it == resolved.pass_settings.end() ? "off" : it->second;
  };
  const Mesh two{{Axis::tensor, 2}};
  EXPECT_EQ(overlap(two, emulated_gpu(1)), "rows");
  EXPECT_EQ(overlap({{Axis::data, 2}, {Axis::tensor, 2}}, emulated_gpu(1)), "rows");
  EXPECT_EQ(overlap(two, emulated_gpu(1), "off"), "off");
  EXPECT_EQ(overlap(two, this_cpu(1)), "off");
  EXPECT_EQ(overlap({{Axis::pipeline, 2}, {Axis::tensor, 2}}, emulated_gpu(1)), "off");
  EXPECT_EQ(overlap({{Axis::context, 2}}, emulated_gpu(1)), "off");
  EXPECT_EQ(overlap(two, emulated_gpu(1), "rows"), "rows");
}

// A plan that does not fit suggests flags that do, with every way of summing gradients.
TEST(RanksOnGpus, WhatDoesNotFitSuggestsShardsThatAreAllowed) {
  for (auto [name, value] : {std::pair("reduce", "each"),
                             {"reduce", "overlap"},
                             {"reduce", "flat"},
                             {"reduce", "bucket"},
                             {"gather", "forward"},
                             {"comm-dtype", "bf16"}}) {
    SCOPED_TRACE(std::string(name) + " " + value);
    Recipe r = tiny_recipe(false);
    r.fusion = "on", r.data_parallel = 2;
    r.pass_settings["shard"] = "none", r.pass_settings[name] = value;
    CompiledSession s = rank_session(r, emulated_gpu(1));
    std::string text;
    try {
      check_fits(s, s.planned_bytes() - 1);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::does_not_fit) << e.what();
      text = e.what();
    }
    int offers = 0;
    for (size_t at = text.find("    --shard "); at != text.npos; at = text.find("    --shard ", at + 1), ++offers) {
      Recipe offer = r;
      std::istringstream words(text.substr(at, text.find('\n', at) - at));
      for (std::string flag, given; words >> flag >> given;)
        flag == "--batch" ? void(offer.batch = std::stoll(given)) : void(offer.pass_settings[flag.substr(2)] = given);
      EXPECT_LT(rank_session(offer, emulated_gpu(1)).planned_bytes(), s.planned_bytes()) << text;
    }
    EXPECT_GT(offers, 0) << text;
  }
}
