// Sessions: values shared by several Programs, memory of a process, fitting sizes, and planning
// time.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <set>

#include "core/error.h"
#include "device.h"
#include "device/data_sheet.h"
#include "device/find.h"
#include "model/parameters.h"
#include "passes/tiny.h"
#include "plan/compile.h"
#include "plan/search.h"
#include "plan/session_properties.h"
#include "plan/training_use.h"
#include "plan/what_fits.h"
#include "run/executor.h"
#include "slowness.h"

using namespace crest;
using namespace crest::test;

namespace {

SessionUse everything() {
  SessionUse use;
  use.train = use.update = use.validation = use.sampling = true;
  use.prefill = 3;
  return use;
}

Device cpu() { return find_device("cpu", 1); }

Recipe small(const std::string& model) {
  Recipe r = tiny_recipe(model == "llama");
  r.model.layers = 2, r.model.width = 32, r.model.head_dim = 16, r.model.ff = 64, r.model.vocab = 300;
  r.model.context = 48, r.batch = 3, r.seq = 40, r.pad_vocab = 128, r.fusion = "on";
  return r;
}

int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

// Every precision and policy: the executor's arenas
// are as planned, and the categories add up.
TEST(Session, HoldsWhatWasPlanned) {
  for (const char* model : {"gpt2", "llama"})
    for (const char* precision : {"fp32", "bf16", "fp16"})
      for (const char* policy : {"pure", "autocast"})
        for (const char* recompute : {"none", "activation", "pointwise", "selective", "full"})
          for (int64_t steps : {1, 3})
            for (const char* fusion : {"on", "off"}) {
              Recipe r = small(model);
              r.precision = precision, r.policy = policy, r.recompute = recompute, r.grad_accumulation = steps;
              r.fusion = fusion, r.attention = fusion == std::string("on") ? "flash" : "naive";
              SCOPED_TRACE(::testing::Message() << model << " " << precision << " " << policy << " " << recompute << " "
                                                << steps << " fusion " << fusion);
              CompiledSession s = compile(r, cpu(), session_programs(r, everything()));
              Executor e(s);
              EXPECT_EQ(e.held_bytes(), s.planned_bytes());
              EXPECT_EQ(total(s.by_category()), s.planned_bytes());
              for (int64_t b : s.by_category()) EXPECT_GE(b, 0);
              int64_t largest = 0;
              for (auto& c : s.programs) largest = std::max(largest, c.memory.bytes);
              EXPECT_EQ(s.transient_bytes, largest);
            }
}

// The logits of one piece in place of all, in
// every Program with a loss; held equals planned.
TEST(Session, LossInPiecesKeepsTheLogitsOfOne) {
  for (const char* precision : {"fp32", "bf16"})
    for (const char* policy : {"pure", "autocast"})
      for (const char* fusion : {"on", "off"}) {
        SCOPED_TRACE(::testing::Message() << precision << " " << policy << " fusion " << fusion);
        Recipe r = small("gpt2");
        r.model.vocab = 5000, r.precision = precision, r.policy = policy, r.fusion = fusion;
        SessionUse use = everything();
        use.sampling = false;
        r.pass_settings["loss-chunk"] = "off";
        CompiledSession whole = compile(r, cpu(), session_programs(r, use));
        r.pass_settings["loss-chunk"] = "30";
        CompiledSession pieces = compile(r, cpu(), session_programs(r, use));
        EXPECT_EQ(Executor(pieces).held_bytes(), pieces.planned_bytes());
        EXPECT_EQ(pieces.persistent_bytes, whole.persistent_bytes);
        // 120 tokens in 4 pieces; an fp32 copy beside a bf16 one (autocast) or a gradient beside it
        // is cut alike.
        int64_t logits = 120 * 5120 * (precision == std::string("fp32") ? 4 : 2), gone = logits - logits / 4;
        for (const char* program : {"train", "validation"}) {
          int64_t a = whole.programs[size_t(whole.find(program))].memory.bytes;
          int64_t b = pieces.programs[size_t(pieces.find(program))].memory.bytes;
          EXPECT_LE(b, a - gone * 9 / 10) << program;
        }
      }
}

// Text about a session states its Programs' properties, not the request.
TEST(Session, TextReadsTheProperties) {
  Recipe r = small("gpt2");  // its batch has fewer tokens than the default chunk
  auto session = [&] { return compile(resolve(r, cpu()), cpu(), session_programs(r, everything())); };
  EXPECT_EQ(loss_chunk(session()), 0);
  EXPECT_FALSE(keeps_shards(session(), Role::state, Axis::data));
  r.pass_settings["loss-chunk"] = "3", r.data_parallel = 2, r.pass_settings["shard"] = "optimizer",
  r.pass_settings["reduce"] = "flat";
  EXPECT_EQ(loss_chunk(session()), 3);
  EXPECT_TRUE(keeps_shards(session(), Role::state, Axis::data));
  EXPECT_FALSE(keeps_shards(session(), Role::weight, Axis::data));
}

// State kept from step to step is not temporary: fp8's record besides its states.
TEST(Session, WhatStaysIsNotTemporary) {
  Recipe r = small("gpt2");
  r.precision = "fp8", r.model.width = 32, r.model.head_dim = 16;
  CompiledSession s = compile(resolve(r, cpu()), cpu(), session_programs(r, everything()));
  int records = 0;
  for (auto& b : s.persistent) {
    EXPECT_NE(b.category, Category::temporary) << b.name;
    records += b.name == "fp8.record" || b.name == "fp8.lost";
  }
  EXPECT_EQ(records, 2);
}

// fp8's other memory: tables of three slots for each linear layer, and, from the forward to the
// backward half, scales and statistics of norms. The gaps between tensors may differ, too.
TEST(Session, Fp8TakesNoMoreMemoryThanBf16) {
  Device h200 = described_device(find_data_sheet("h200"));
  for (const char* model : {"gpt2-124M", "gpt2-774M", "gpt2-1558M", "llama-1B"})
    for (int64_t tokens : {4096, 16384}) {
      SCOPED_TRACE(testing::Message() << model << " " << tokens);
      Recipe r;
      r.model = load_model_config(model);
      r.seq = std::min<int64_t>(r.model.context, 4096), r.batch = tokens / r.seq, r.precision = "bf16";
      SessionUse use;
      use.train = use.update = true;
      auto planned = [&] { return compile(r, h200, session_programs(r, use)); };
      CompiledSession half = planned();
      r.precision = "fp8";
      CompiledSession fp8 = planned();
      int64_t linears = r.model.layers * (model == std::string("llama-1B") ? 5 : 4);
      int64_t tables = linears * 3 * int64_t(2 * sizeof(float) + 4 * sizeof(int64_t));
      EXPECT_LE(fp8.persistent_bytes, half.persistent_bytes + tables + 4 * 256);
      EXPECT_LE(double(fp8.planned_bytes()), 1.001 * double(half.planned_bytes()));
    }
}

// A CPU cuts where 32 MiB of logits are fewer than the tokens, a GPU where it is told to.
TEST(Session, LossInPiecesByItself) {
  Recipe r = small("gpt2");
  EXPECT_EQ(resolve(r, cpu()).pass_settings.at("loss-chunk"), std::to_string((32 << 20) / (4 * 300)));
  r.model.vocab = 50257;
  EXPECT_EQ(resolve(r, cpu()).pass_settings.at("loss-chunk"), "256");
  r.precision = "bf16";
  EXPECT_EQ(resolve(r, cpu()).pass_settings.at("loss-chunk"), "512");
  Device gpu = cpu();
  gpu.kind = "cuda", gpu.sm = 90;
  EXPECT_EQ(resolve(r, gpu).pass_settings.at("loss-chunk"), "8192");
  for (const char* wrong : {"0", "-1", "1.5", "some", ""}) {
    r.pass_settings["loss-chunk"] = wrong;
    EXPECT_THROW(compile(r, cpu(), session_programs(r, everything())), Error) << wrong;
  }
}

// On a GPU the logits of an odd vocabulary have rows at multiples of 128 bytes. Except for the
// pitch the session equals the narrower one, and the host reads contiguous values.
TEST(Session, LogitsOfAnOddVocabularyHaveAPitch) {
  Recipe r = small("gpt2");
  r.model.vocab = 257, r.pad_vocab = 1;
  const int64_t rows = r.batch * r.seq;
  for (std::string precision : {"fp32", "bf16"})
    for (std::string chunk : {"off", "50"}) {
      SCOPED_TRACE(precision + " " + chunk);
      r.precision = precision, r.pass_settings["loss-chunk"] = chunk;
      CompiledSession s = compile(r, emulated_gpu(1), session_programs(r, everything()));
      const int64_t pitch = precision == "fp32" ? 288 : 320, size = precision == "fp32" ? 4 : 2;
      int wide = 0;
      for (auto& c : s.programs)
        for (size_t v = 0; v < c.program.values.size(); ++v) {
          const Value& x = c.program.values[v];
          const bool logits = x.shape.rank() > 1 && x.shape.back() == 257;
          if (!logits || x.shape.rows() == 1) {
            EXPECT_TRUE(x.contiguous() || x.layout.storage != ValueId(v)) << x.name;
            continue;
          }
          ++wide;
          EXPECT_EQ(x.pitch(), pitch) << c.spec.name << " " << x.name;
          int block = c.memory.block_of_value[v];
          EXPECT_EQ(c.memory.blocks[size_t(block)].bytes, aligned(x.shape.rows() * pitch * size)) << x.name;
          EXPECT_EQ(c.memory.blocks[size_t(block)].bytes,
                    aligned((chunk == "off" ? rows : x.shape.rows()) * pitch * size));
        }
      EXPECT_EQ(wide, chunk == "off" ? 3 : 9);  // logits and their gradient; logits of the validation; in 3 chunks
      for (auto& c : s.programs)
        for (auto& q : c.program.params) {
          EXPECT_TRUE(c.program.at(q.value).contiguous()) << q.name;
          EXPECT_TRUE(c.program.at(q.value).shape == q.shape) << q.name;
        }
      Executor e(s);
      EXPECT_EQ(e.held_bytes(), s.planned_bytes());
      EXPECT_EQ(total(s.by_category()), s.planned_bytes());
    }
  // Disabled, or vectors may begin anywhere, or vectors divide the width: contiguous.
  auto any_pitch = [](const CompiledSession& s) {
    for (auto& c : s.programs)
      for (auto& v : c.program.values)
        if (!v.contiguous() && v.pitch() > 0) return true;
    return false;
  };
  EXPECT_TRUE(any_pitch(compile(r, emulated_gpu(1), session_programs(r, everything()))));
  EXPECT_FALSE(any_pitch(compile(r, cpu(), session_programs(r, everything()))));
  Recipe even = r, off = r;
  even.model.vocab = 264, off.disabled_passes = {"row_pitch"};
  EXPECT_FALSE(any_pitch(compile(even, emulated_gpu(1), session_programs(even, everything()))));
  EXPECT_FALSE(any_pitch(compile(off, emulated_gpu(1), session_programs(off, everything()))));
}

// With two micro steps all gradients are there at the peak (one: gradient_storage.cpp).
TEST(Session, CategoriesAreWhatAParameterCounts) {
  Recipe r = small("gpt2");
  r.pad_vocab = 1, r.grad_accumulation = 2;
  struct Expected {
    const char *precision, *policy, *masters;
    int64_t weights, gradients, states;  // bytes a parameter
  };
  for (auto& x : {Expected{"fp32", "pure", "split", 4, 4, 8}, Expected{"bf16", "pure", "split", 2, 4, 10},
                  Expected{"bf16", "pure", "fp32", 2, 4, 12}, Expected{"bf16", "autocast", "split", 4, 4, 8}}) {
    r.precision = x.precision, r.policy = x.policy, r.pass_settings["master-weights"] = x.masters;
    CompiledSession s = compile(r, cpu(), session_programs(r, everything()));
    CategoryBytes c = s.by_category();
    int64_t n = parameter_count(r.model);
    double slack = 1.05;  // groups start every tensor at a multiple of 64 elements
    auto near = [&](Category k, int64_t bytes) {
      EXPECT_GE(c[size_t(k)], bytes) << x.precision << " " << x.policy << " " << name(k);
      EXPECT_LE(double(c[size_t(k)]), slack * double(bytes) + 8192) << x.precision << " " << x.policy << " " << name(k);
    };
    near(Category::gradients, n * x.gradients);
    near(Category::optimizer_state, n * x.states);
    if (x.policy == std::string("pure")) near(Category::weights, n * x.weights);
    near(Category::kv_cache, r.model.layers * 2 * r.model.context * r.model.width * (x.precision[0] == 'b' ? 2 : 4));
  }
}

TEST(Session, PersistentStoragesAreJoinedByName) {
  Recipe r = small("gpt2");
  r.precision = "bf16", r.policy = "autocast", r.grad_accumulation = 2;
  CompiledSession s = compile(r, cpu(), session_programs(r, everything()));
  std::set<std::string> names;
  int64_t end = 0;
  for (auto& b : s.persistent) {
    EXPECT_TRUE(names.insert(b.name).second) << b.name << " is there twice";
    EXPECT_EQ(b.offset, end) << b.name;
    end = b.offset + aligned(b.bytes);
  }
  EXPECT_EQ(end, s.persistent_bytes);
  Executor e(s);
  // Each Program sees the same memory under the same name.
  int joined = 0;
  for (size_t a = 0; a < s.programs.size(); ++a)
    for (auto& value : s.programs[a].program.values) {
      if (value.lifetime == Lifetime::micro_step) continue;
      for (size_t b = a + 1; b < s.programs.size(); ++b) {
        if (!e.has(int(b), value.name)) continue;
        ValueId other = s.programs[b].program.find(value.name);
        if (s.programs[b].program.at(other).lifetime == Lifetime::micro_step) continue;
        EXPECT_EQ(e.tensor(int(a), value.name).data, e.tensor(int(b), value.name).data) << value.name;
        ++joined;
      }
    }
  EXPECT_GT(joined, 100);
  for (const char* shared : {"wte.weight", "scalars"})
    for (size_t p = 0; p < s.programs.size(); ++p) EXPECT_TRUE(e.has(int(p), shared)) << shared << " " << p;
  EXPECT_EQ(e.tensor(s.find("train.first"), "grad.wte.weight").data,
            e.tensor(s.find("update"), "grad.wte.weight").data);
  EXPECT_EQ(e.tensor(s.find("prefill"), "cache.1").data, e.tensor(s.find("decode"), "cache.1").data);
}

// Sampling and validation during training cost no transient memory beyond the largest Program's.
TEST(Session, ProgramsShareOneTransientArena) {
  Recipe r = small("gpt2");
  SessionUse training;
  training.train = training.update = true;
  CompiledSession alone = compile(r, cpu(), session_programs(r, training));
  CompiledSession all = compile(r, cpu(), session_programs(r, everything()));
  EXPECT_EQ(alone.transient_bytes, all.transient_bytes);
  EXPECT_EQ(all.largest().spec.name, "train");
}

TEST(Session, AStepIsAListOfCalls) {
  auto calls = [](int64_t steps, int ranks) {
    Recipe r = small("gpt2");
    r.grad_accumulation = steps, r.data_parallel = ranks;
    SessionUse use;
    use.train = use.update = true;
    CompiledSession s = compile(r, cpu(), session_programs(r, use));
    std::string text;
    for (auto& c : training_step(s))
      text += s.programs[size_t(c.segment)].spec.name + "(" + std::to_string(c.micro_step) + ") ";
    return text;
  };
  EXPECT_EQ(calls(1, 1), "train(0) update(-1) ");
  EXPECT_EQ(calls(3, 1), "train.first(0) train.next(1) train.next(2) update(-1) ");
  EXPECT_EQ(calls(2, 2), "train.first(0) train.last(1) update(-1) ");
  EXPECT_EQ(calls(3, 2), "train.first(0) train.next(1) train.last(2) update(-1) ");
}

TEST(CheckFits, SaysByCategoryWhatIsNeededAndWhatWouldFit) {
  Recipe r = small("gpt2");
  r.model.layers = 6, r.batch = 64;
  CompiledSession s = compile(r, cpu(), session_programs(r, everything()));
  check_fits(s, s.planned_bytes());
  int64_t limit = s.persistent_bytes + s.transient_bytes / 3;
  try {
    check_fits(s, limit);
    FAIL() << "it fits";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::does_not_fit);
    EXPECT_EQ(int(e.code()), 3);
    std::string text = e.what();
    CategoryBytes c = s.by_category();
    for (int i = 0; i < category_count; ++i)
      if (c[size_t(i)]) {
        EXPECT_NE(text.find(std::string(name(Category(i)))), std::string::npos) << name(Category(i));
      }
    for (const char* part : {"the plan needs", "available", "What would fit", "--recompute none --batch",
                             "--recompute selective --batch", "--recompute full --batch"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
    // Its offer fits, and one sequence more does not.
    int offers = 0;
    for (const char* recompute : {"none", "activation", "pointwise", "selective", "full"}) {
      std::string key = std::string("--recompute ") + recompute + " --batch ";
      size_t at = text.find(key);
      if (at == std::string::npos) continue;
      Recipe offer = r;
      offer.recompute = recompute, offer.batch = std::stoll(text.substr(at + key.size()));
      EXPECT_LE(compile(offer, cpu(), session_programs(offer, everything())).planned_bytes(), limit) << key;
      if (offer.batch < r.batch) {
        ++offer.batch;
        EXPECT_GT(compile(offer, cpu(), session_programs(offer, everything())).planned_bytes(), limit) << key;
        ++offers;
      }
    }
    EXPECT_GE(offers, 2);
  }
  try {
    check_fits(s, 1 << 16);
    FAIL() << "it fits";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::does_not_fit);
    EXPECT_NE(std::string(e.what()).find("Nothing that was tried fits"), std::string::npos);
  }
}

// A validation batch larger than the micro batch
// does not shrink with it: no offer may forget it.
TEST(CheckFits, RemembersWhatTheBatchDoesNotChange) {
  Recipe r = small("gpt2");
  SessionUse use = everything();
  use.validation_batch = 500;
  CompiledSession s = compile(r, cpu(), session_programs(r, use));
  ASSERT_EQ(s.largest().spec.name, "validation");
  try {
    check_fits(s, s.planned_bytes() - 1);
    FAIL() << "it fits";
  } catch (const Error& e) {
    // A shorter sequence does help, and is the only offer.
    std::string text = e.what();
    EXPECT_NE(text.find("What would fit:\n    --seq 20 --recompute full --batch 1"), std::string::npos) << text;
    EXPECT_EQ(text.find("--recompute none"), std::string::npos) << text;
  }
}

// Only settings with an effect on these Programs: an evaluation has no backward pass and no
// optimizer.
TEST(WhatFits, NamesWhatCanHelp) {
  auto offers = [](const Recipe& r, const SessionUse& use, const std::function<int64_t(CompiledSession&)>& limit) {
    CompiledSession s = compile(r, find_device("h100", 1), session_programs(r, use), {.verify = false});
    return what_fits(s, limit(s));
  };
  Recipe r;
  r.model = load_model_config("gpt2-124M");
  r.model.layers = 2, r.precision = "bf16", r.recompute = "full", r.batch = 1;
  auto state = [](CompiledSession& s) { return s.persistent_bytes * 9 / 10 + s.transient_bytes; };
  EXPECT_EQ(offers(r, {.train = true, .update = true}, state),
            std::vector<std::string>{"--offload optimizer --batch 1"});
  auto half = [](CompiledSession& s) { return s.persistent_bytes + s.transient_bytes * 6 / 10; };
  r.batch = 64;
  std::vector<std::string> list = offers(r, {.validation = true}, half);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_TRUE(list[0].starts_with("--batch ")) << list[0];
  r.batch = 1;
  list = offers(r, {.validation = true}, half);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_TRUE(list[0].starts_with("--seq ")) << list[0];
  EXPECT_TRUE(offers(r, {.validation = true}, [](CompiledSession& s) { return s.persistent_bytes / 2; }).empty());
}

// A session with the rest of its Programs added later equals one with all at once.
TEST(Session, GetsProgramsLater) {
  for (int64_t steps : {1, 2}) {
    Recipe r = small("llama");
    r.grad_accumulation = steps;
    CompiledSession whole = compile(r, cpu(), session_programs(r, everything()));
    CompiledSession s = compile(r, cpu(), session_programs(r, {.train = true, .update = true}));
    EXPECT_LT(s.planned_bytes(), whole.planned_bytes());
    extend(s, session_programs(r, everything()));
    ASSERT_EQ(s.programs.size(), whole.programs.size());
    EXPECT_EQ(s.planned_bytes(), whole.planned_bytes());
    EXPECT_EQ(s.by_category(), whole.by_category());
    for (size_t i = 0; i < s.programs.size(); ++i) {
      EXPECT_EQ(s.programs[i].spec.name, whole.programs[i].spec.name);
      EXPECT_EQ(s.programs[i].memory.bytes, whole.programs[i].memory.bytes);
    }
  }
}

// Offers can run: the update cannot quantize shards of weights, and 8-bit weights not kept by a
// step are not worth an offer.
TEST(CheckFits, OffersWhatFp8WeightsAllow) {
  Recipe r = small("gpt2");
  r.precision = "fp8", r.fusion = "on", r.data_parallel = 2, r.batch = 4;
  r.model.width = 32, r.model.head_dim = 16;
  auto said = [](const Recipe& recipe) -> std::string {
    CompiledSession s = compile(recipe, cpu(), session_programs(recipe, everything()));
    try {
      check_fits(s, s.planned_bytes() - 1);
      return "it fits";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::does_not_fit) << e.what();
      return e.what();
    }
  };
  EXPECT_NE(said(r).find("--shard weights"), std::string::npos) << said(r);
  EXPECT_EQ(said(r).find("--fp8-weights"), std::string::npos) << said(r);
  r.pass_settings["fp8-weights"] = "update";
  EXPECT_EQ(said(r).find("--shard weights"), std::string::npos) << said(r);
  EXPECT_NE(said(r).find("--fp8-weights again"), std::string::npos) << said(r);
}

// Best fit over lifetimes wastes little: the arena of GPT-2 124M against the largest sum of live
// tensors, for every class of processors. Fused and unfused recipes differ in their lifetimes,
// classes and dtypes in their workspaces.
TEST(Fragmentation, IsSmallForGpt2) {
  Recipe r;
  r.model = load_model_config("gpt2-124M");
  r.batch = 4;
  SessionUse use;
  use.train = true;
  double worst = 0;
  std::string where;
  CompileOptions quick;
  quick.verify = false;
#ifdef __SANITIZE_ADDRESS__
  const std::vector<Isa> classes = {active_isa()};  // ten times as slow, and the same code
#else
  const std::vector<Isa> classes(all_isas.begin(), all_isas.end());
#endif
  for (Isa isa : classes)
    for (const char* precision : {"fp32", "bf16", "fp16"})
      for (const char* policy : {"pure", "autocast"})
        for (const char* attention : {"flash", "naive"})
          for (const char* fusion : {"on", "off"})
            for (const char* recompute : {"none", "activation", "pointwise", "selective", "full"})
              for (auto [seq, steps] : {std::pair{256, 1}, {256, 2}, {1024, 1}, {1024, 2}}) {
                r.grad_accumulation = steps;
                r.precision = precision, r.policy = policy, r.attention = attention, r.fusion = fusion;
                r.recompute = recompute, r.seq = seq;
                if (precision == std::string("fp32") && policy == std::string("autocast")) continue;
                CompiledSession s = compile(r, cpu_device(isa, 2), session_programs(r, use), quick);
                const MemoryPlan& m = s.programs[0].memory;
                double waste = 100.0 * double(m.bytes - m.live_peak) / double(m.live_peak);
                std::string recipe = std::string(name(isa)) + " " + precision + " " + policy + " attention " +
                                     attention + " fusion " + fusion + " recompute " + recompute + " seq " +
                                     std::to_string(seq) + " steps " + std::to_string(steps);
                EXPECT_LE(waste, 3) << recipe;
                if (waste > worst) worst = waste, where = recipe;
              }
  RecordProperty("worst_percent", std::to_string(worst));
  std::printf("worst fragmentation %.3f%% (%s)\n", worst, where.c_str());
}

namespace {

// CPU seconds of passes, verification, kernel choice and planning of a whole training session
// (first and later micro steps, update, validation, sampling), unfused; median of five.
double compile_seconds(int64_t layers) {
  Recipe r;
  r.model = load_model_config("gpt2-1558M");
  r.model.layers = layers, r.fusion = "off", r.attention = "naive", r.batch = 1;
  r.precision = "bf16", r.policy = "autocast", r.grad_accumulation = 2;
  Device device = cpu();
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    std::clock_t start = std::clock();
    CompiledSession s = compile(r, device, session_programs(r, everything()));
    seconds.push_back(double(std::clock() - start) / CLOCKS_PER_SEC);
    size_t instructions = 0;
    for (auto& c : s.programs) instructions += c.program.code.size();
    if (i == 0) std::printf("%d layers: %zu instructions\n", int(layers), instructions);
  }
  return *std::min_element(seconds.begin(), seconds.end());  // of processes sharing a core
}

}  // namespace

// The limit is for an optimized build. With sanitizers or -O0, the test only checks the growth of
// the time with the Program.
TEST(CompileTime, IsNearLinearAndUnderHalfASecond) {
  double half = compile_seconds(24), whole = compile_seconds(48);
  std::printf("24 layers %.3f s, 48 layers %.3f s of CPU time\n", half, whole);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LE(whole, 0.5);
#endif
  EXPECT_LE(whole, 2.8 * half + 0.02);
}

namespace {

// CPU seconds of `crest plan` for a model of many small layers: a
// session and the largest batch. The least of some rounds, since
// others may share the core; no further ones when it is `enough`.
double plan_seconds(int64_t layers, const char* fusion, bool verify, int rounds, double enough = 0) {
  Recipe r;
  r.model = load_model_config("nano");
  r.model.layers = layers, r.batch = 2, r.fusion = fusion;
  Device device = cpu();
  CompileOptions options;
  options.verify = verify;
  double least = 1e9;
  for (int i = 0; i < rounds && least > enough; ++i) {
    std::clock_t start = std::clock();
    CompiledSession s = compile(r, device, session_programs(r, everything()), options);
    largest_batch(s, everything(), int64_t(64) << 30);
    least = std::min(least, double(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return least;
}

}  // namespace

// Eight times the layers take eight times as long, and some more where they leave the caches, not
// sixty-four: placement, the flat update of thousands of tensors, names and verification.
TEST(CompileTime, GrowsWithTheLayers) {
  for (const char* fusion : {"on", "off"})
    for (bool verify : {false, true}) {
      SCOPED_TRACE(testing::Message() << "fusion " << fusion << (verify ? ", verified" : ""));
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
      const int64_t layers = 512;
      const double limit = verify ? 1e9 : 2 * slowness();
#else
      const int64_t layers = 128;
      const double limit = 1e9;
#endif
      double eighth = plan_seconds(layers / 8, fusion, verify, 5), allowed = std::min(limit, 18 * eighth + 0.02);
      double whole = plan_seconds(layers, fusion, verify, 3, allowed);
      std::printf("fusion %s%s: %.3f s of CPU time, of an eighth of the layers %.3f s\n", fusion,
                  verify ? ", verified" : "", whole, eighth);
      EXPECT_LE(whole, allowed);
    }
}
