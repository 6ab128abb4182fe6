// Incomplete runs: no profile, a foreign trace, training logs, other phases, nothing at all;
// hostile text.
#include <gtest/gtest.h>

#include <cmath>

#include "compare/compare.h"
#include "compare/compare_text.h"
#include "compare/synthetic.h"
#include "contains.h"
#include "core/error.h"
#include "core/random.h"

using namespace crest;
using namespace crest::test;

namespace {

bool any_contains(const std::vector<std::string>& list, const std::string& part) {
  for (auto& text : list)
    if (contains(text, part)) return true;
  return false;
}

Synthetic partial_nano() {
  Synthetic s;
  s.recipe = recipe_of("nano", 2, 64);
  return s;
}

// A record of crest bench: samples and a row, no profile.
RunRecord bench_run(const Synthetic& how) {
  RunRecord r = make_record(how);
  r.kind = "bench";
  Profile p = profile_from_json(r.documents["profile"], "test");
  for (double ms : p.step_ms) r.samples.push_back({ms, 0, "", false});
  Json rows = Json::array();
  for (auto row : r.documents["profile"]["instrs"]) {
    row.erase("ms");
    row.erase("floor_ms");
    rows.push_back(row);
  }
  r.documents = {{"program", {{"calls", Json::array()}, {"instrs", rows}}}};
  r.result = {
      {"step_ms_median", p.step_median_ms()},
      {"memory",
       {{"planned_bytes", p.memory.planned_bytes}, {"by_category", {{"activations", p.memory.planned_bytes}}}}}};
  return r;
}

RunRecord training_run(double loss_offset, double step_ms) {
  RunRecord r;
  r.kind = "train", r.status = "done", r.name = "training";
  for (int step = 1; step <= 20; ++step) {
    LogRow row;
    row.step = step, row.loss = 5.0 / step + loss_offset, row.step_ms = step_ms, row.tokens_per_second = 1e6 / step_ms;
    r.log.push_back(row);
    if (step % 10) continue;
    LogRow validation;
    validation.step = step, validation.val_loss = 5.5 / step + loss_offset;
    r.log.push_back(validation);
  }
  return r;
}

// As traces/torch_trace.h makes it: classes and phases, no costs, no recipe, no memory.
Profile trace_like() {
  Profile p = make_profile(partial_nano()), t;
  t.device = {{"kind", "cuda"}, {"index", 0}, {"name", "some GPU"}};
  t.method = "torch.profiler";
  t.calls = {"torch"};
  for (auto& row : p.instrs) {
    ProfileInstr* found = nullptr;
    for (auto& r : t.instrs)
      if (r.op_class == row.op_class && r.phase == row.phase) found = &r;
    if (!found) {
      t.instrs.emplace_back();
      found = &t.instrs.back();
      found->program = "torch", found->index = int(t.instrs.size()) - 1;
      found->op = found->op_class = row.op_class, found->phase = row.phase, found->stream = "compute";
    }
    found->ms += 1.5 * row.ms;
  }
  for (auto& row : t.instrs) t.busy_ms += row.ms;
  t.idle_ms = p.idle_ms, t.span_ms = t.busy_ms + t.idle_ms;
  t.step_ms.assign(4, t.span_ms), t.throttled.assign(4, 0);
  t.profiled_ms = t.step_ms;
  return t;
}

std::string error_of(const RunRecord& a, const RunRecord& b) {
  try {
    compare_runs(a, b);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST(ComparePartial, WithoutProfilesWorkAndMemoryAreCompared) {
  Synthetic a = partial_nano(), b = partial_nano();
  a.recipe.attention = "naive";
  for (Synthetic* s : {&a, &b}) s->recipe.kernels = {{"linear", "*tiled"}};
  RunComparison c = compare_runs(bench_run(a), bench_run(b));
  EXPECT_EQ(c.noise.verdict, Verdict::b_faster);
  ASSERT_EQ(c.waterfall.size(), 1u);
  EXPECT_EQ(c.waterfall[0].factor, Factor::unsplit);
  EXPECT_EQ(c.waterfall[0].ms, c.step_difference());
  EXPECT_EQ(c.causes[0].label, "attention");
  EXPECT_EQ(c.causes[0].ms, 0) << "its time was not measured";
  EXPECT_LT(c.causes[0].b.bytes, c.causes[0].a.bytes);
  ASSERT_EQ(c.memory.size(), 1u);
  EXPECT_EQ(c.memory[0].b - c.memory[0].a, c.planned_difference());
  EXPECT_TRUE(any_contains(c.notes, "crest profile --model nano --batch 2 --seq 64")) << c.notes[0];
  EXPECT_TRUE(any_contains(c.notes, "--attention naive"));
  EXPECT_TRUE(any_contains(c.notes, "--kernel 'linear=*tiled'")) << c.notes[0];
  EXPECT_TRUE(any_contains(c.sentences, "Work of the Programs"));
  EXPECT_FALSE(any_contains(c.sentences, "because"));
  std::string text = compare_text(c);
  EXPECT_TRUE(contains(text, "Work of the Programs (times"));
}

TEST(ComparePartial, OneProfileIsNotEnoughToSplit) {
  RunComparison c = compare_runs(bench_run(partial_nano()), make_record(partial_nano()));
  EXPECT_TRUE(any_contains(c.notes, "A has no profile"));
  EXPECT_FALSE(any_contains(c.notes, "B has no profile"));
  EXPECT_EQ(c.causes.size(), compare_runs(make_record(partial_nano()), make_record(partial_nano())).causes.size());
}

// A bench and a profile of one recipe: any difference is noise, with every assumed noise floor.
TEST(ComparePartial, RunsOfOneRecipeAreNotFasterThanEachOther) {
  Synthetic quick = partial_nano(), slow = partial_nano();
  slow.slowdown = [](const ProfileInstr&) { return 4.0; };
  for (bool bench : {false, true}) {
    RunRecord other = bench ? bench_run(slow) : make_record(slow);
    RunComparison c = compare_runs(bench_run(quick), other);
    EXPECT_GT(c.noise.ratio, 1.4);
    EXPECT_EQ(c.noise.floor_source, "assumed");
    EXPECT_EQ(c.noise.verdict, Verdict::cannot_tell);
    EXPECT_TRUE(contains(c.sentences[0], "No difference in speed beyond noise")) << c.sentences[0];
    other.recipe["seed"] = 77;
    EXPECT_EQ(compare_runs(other, bench_run(quick)).noise.verdict, Verdict::cannot_tell) << "a seed takes no time";
  }
  CompareOptions measured;
  measured.noise_floor = 0.02;
  EXPECT_EQ(compare_runs(bench_run(quick), bench_run(slow), measured).noise.verdict, Verdict::a_faster);
  slow.recipe.fusion = "off";
  EXPECT_EQ(compare_runs(bench_run(quick), bench_run(slow)).noise.verdict, Verdict::a_faster) << "something changed";
}

TEST(ComparePartial, AForeignTraceIsJoinedByClass) {
  RunRecord trace = record_of(trace_like(), "trace.json");
  trace.recipe = nullptr;
  RunComparison c = compare_runs(trace, make_record(partial_nano()));
  EXPECT_EQ(c.join, "classes and phases");
  EXPECT_EQ(c.noise.verdict, Verdict::b_faster);
  double bars = 0, unsplit = 0;
  for (auto& w : c.waterfall) bars += w.ms, unsplit += w.factor == Factor::unsplit ? w.ms : 0;
  EXPECT_NEAR(bars, c.step_difference(), 1e-9 * c.a.step_ms);
  EXPECT_LT(unsplit, 0);
  for (auto& w : c.waterfall)
    EXPECT_TRUE(w.factor == Factor::unsplit || w.factor >= Factor::idle) << name(w.factor) << " was not measured";
  EXPECT_TRUE(any_contains(c.notes, "only with the profiler on"));
  EXPECT_TRUE(any_contains(c.notes, "is missing or incomplete, so the changes are unknown"));
  EXPECT_TRUE(any_contains(c.notes, "Rows are matched by operation class"));
  for (auto& d : c.differences) EXPECT_EQ(d.section, "device");
  // Unexplained kernel time is no reason: the class with the largest part is named.
  EXPECT_TRUE(contains(c.sentences[0], "because of " + c.causes[0].label)) << c.sentences[0];
  EXPECT_FALSE(contains(compare_text(c), "\n\n\n"));
  for (auto& cause : c.causes) EXPECT_NE(cause.label, "contraction");
}

TEST(ComparePartial, TrainingRunsHaveTheirLosses) {
  RunComparison c = compare_runs(training_run(0, 100), training_run(0.25, 80));
  EXPECT_EQ(c.noise.verdict, Verdict::b_faster);
  ASSERT_EQ(c.training.loss.size(), 20u);
  ASSERT_EQ(c.training.val_loss.size(), 2u);
  for (auto& row : c.training.loss) EXPECT_NEAR(row.b - row.a, 0.25, 1e-12);
  EXPECT_NEAR(c.training.tokens_per_second_b / c.training.tokens_per_second_a, 1.25, 1e-12);
  EXPECT_TRUE(any_contains(c.sentences, "At step 20")) << c.sentences[0];
  RunRecord shorter = training_run(0, 100);
  shorter.log.resize(5);
  EXPECT_EQ(compare_runs(shorter, training_run(0, 100)).training.loss.size(), 5u);
}

TEST(ComparePartial, ARepeatedStepCountsAsItWasRunLast) {
  RunRecord a = training_run(0, 100), b = training_run(0.25, 100);
  for (RunRecord* r : {&a, &b}) {  // stopped at step 20, continued from 17
    RunRecord again = training_run(r == &a ? 0.5 : 1, 100);
    for (auto& row : again.log)
      if (row.step > 17) r->log.push_back(row);
  }
  a.log.push_back(a.log.back());
  RunComparison one = compare_runs(a, b), other = compare_runs(b, a);
  ASSERT_EQ(one.training.loss.size(), 20u);
  ASSERT_EQ(other.training.loss.size(), 20u);
  ASSERT_EQ(one.training.val_loss.size(), 2u);
  for (size_t i = 0; i < 20; ++i) {
    const LossRow &x = one.training.loss[i], &y = other.training.loss[i];
    EXPECT_EQ(x.step, int64_t(i) + 1);
    EXPECT_NEAR(x.b - x.a, x.step > 17 ? 0.5 : 0.25, 1e-12) << x.step;
    EXPECT_EQ(x.a, y.b);
    EXPECT_EQ(x.b, y.a);
  }
}

TEST(ComparePartial, ATrainingRunAgainstAMeasuredStep) {
  EXPECT_NO_THROW(compare_runs(training_run(0, 100), make_record(partial_nano())));
}

TEST(ComparePartial, OtherPhasesAreOtherWork) {
  Profile p = make_profile(partial_nano());
  p.phase = "forward";
  std::string error = error_of(record_of(p, "inference"), make_record(partial_nano(), "training"));
  EXPECT_TRUE(contains(error, "phase forward")) << error;
  EXPECT_TRUE(contains(error, "inference")) << error;
  EXPECT_TRUE(contains(error, "--phase forward")) << "says how to measure the missing one: " << error;
  error = error_of(record_of(p), training_run(0, 100));
  EXPECT_TRUE(contains(error, "phase step")) << error;
}

TEST(ComparePartial, ARunWithoutNumbersIsAnError) {
  RunRecord empty;
  empty.name = "night\x1b[31m", empty.kind = "bench", empty.status = "failed", empty.error = "a \x1b[2Jpeer died";
  std::string error = error_of(empty, make_record(partial_nano()));
  EXPECT_TRUE(contains(error, "status failed")) << error;
  EXPECT_TRUE(contains(error, "peer died")) << error;
  EXPECT_FALSE(contains(error, "\x1b"));
}

TEST(ComparePartial, WhatDoesNotFitIsComparedByItsPlan) {
  RunRecord big = bench_run(partial_nano());
  big.status = "out_of_memory", big.samples.clear(), big.documents.clear();
  big.result = {{"error", "out_of_memory"}, {"memory", {{"planned_bytes", int64_t(100) << 30}}}};
  RunComparison c = compare_runs(big, make_record(partial_nano()));
  EXPECT_TRUE(contains(c.sentences[0], "A does not fit")) << c.sentences[0];
  EXPECT_TRUE(contains(c.sentences[0], "100.00 GiB")) << c.sentences[0];
  EXPECT_TRUE(c.waterfall.empty());
}

TEST(ComparePartial, PlansOfVersion01SpellOneClassDifferently) {
  RunRecord now = bench_run(partial_nano()), old = now;
  int renamed = 0;
  for (auto& row : old.documents["program"]["instrs"])
    if (row["op_class"] == "normalization") row["op_class"] = "normalisation", ++renamed;
  EXPECT_GT(renamed, 0);
  Synthetic slower = partial_nano();
  slower.slowdown = [](const ProfileInstr&) { return 3.0; };
  EXPECT_EQ(to_json(compare_runs(old, make_record(slower))).dump(),
            to_json(compare_runs(now, make_record(slower))).dump());
}

TEST(ComparePartial, DocumentsOfTheWrongShapeDoNoHarm) {
  RunRecord r = bench_run(partial_nano());
  for (const Json& odd :
       {Json(3), Json("x"), Json::array(), Json{{"instrs", 4}}, Json{{"instrs", {1, "x", nullptr}}}}) {
    r.documents["program"] = odd;
    r.documents["plan"] = odd;
    EXPECT_NO_THROW(compare_text(compare_runs(r, make_record(partial_nano()))));
  }
  r.result = {{"memory", 7}, {"step_ms_median", "x"}};
  r.recipe = Json{{"batch", "many"}, {"seq", nullptr}};
  r.device = Json::array();
  r.environment = Json{{"libraries", 3}, {"conditions", "x"}};
  EXPECT_NO_THROW(compare_text(compare_runs(r, make_record(partial_nano()))));
  r.documents["profile"] = Json{{"instrs", "x"}};
  EXPECT_THROW(compare_runs(r, make_record(partial_nano())), Error);
}

namespace {

std::vector<std::string> numbers_in(const Json& json) {
  std::vector<std::string> paths;
  const Json flat = json.flatten();
  for (auto& [path, value] : flat.items())
    if (value.is_number()) paths.push_back(path);
  return paths;
}

}  // namespace

// With one number of a record replaced, there is one error, or a comparison with correct sums.
TEST(ComparePartial, TamperedNumbersAreRefusedOrAddUp) {
  Synthetic small = partial_nano();
  small.recipe.model.layers = 1;
  const RunRecord honest = make_record(small, "honest");
  const std::vector<std::string> paths = numbers_in(honest.documents.at("profile"));
  const Json odd[] = {0, -1, 1e300, -0.5, nullptr, "7", Json::array()};
  int refused = 0, compared = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    RunRecord r = honest;
    const std::string& path = paths[random_bits(1, 0, i) % paths.size()];
    r.documents["profile"][Json::json_pointer(path)] = odd[i % std::size(odd)];
    SCOPED_TRACE(path + " = " + odd[i % std::size(odd)].dump());
    for (bool swapped : {false, true}) try {
        RunComparison c = swapped ? compare_runs(r, honest) : compare_runs(honest, r);
        double bars = 0, size = std::max(std::abs(c.a.step_ms), std::abs(c.b.step_ms));
        for (auto& w : c.waterfall) bars += w.ms, size = std::max(size, std::abs(w.ms));
        EXPECT_TRUE(c.waterfall.empty() || std::abs(bars - c.step_difference()) <= 1e-9 * size);
        std::string text = compare_text(c);
        EXPECT_FALSE(contains(text, "nan") || contains(text, " inf")) << text;
        ++compared;
      } catch (const Error&) {
        ++refused;
      }
  }
  EXPECT_GT(refused, 50);
  EXPECT_GT(compared, 50);
}

// Two profiles measured apart on a busy machine: naive attention came out 16 times as fast as
// flash.
TEST(ComparePartial, ABusyMachineClaimsNothingOfRunsApart) {
  Synthetic slow = partial_nano();
  slow.slowdown = [](const ProfileInstr&) { return 30.0; };
  RunRecord a = make_record(slow, "a"), b = make_record(partial_nano(), "b");
  auto load = [](RunRecord& r, double cpus) { r.environment_after = {{"conditions", {{"other_load", cpus}}}}; };
  for (auto* r : {&a, &b}) r->device["kind"] = "cpu", r->device["name"] = "a CPU", load(*r, 0.1);
  auto verdict = [](const RunRecord& x, const RunRecord& y) { return compare_runs(x, y).noise.verdict; };
  EXPECT_EQ(verdict(a, b), Verdict::b_faster);
  load(a, 1.5);
  for (auto& [x, y] : {std::pair{a, b}, std::pair{b, a}}) {
    RunComparison c = compare_runs(x, y);
    EXPECT_EQ(c.noise.verdict, Verdict::cannot_tell);
    EXPECT_TRUE(contains(c.sentences[0], "measured apart, and other processes kept up to 1.5 CPUs busy"));
    EXPECT_FALSE(contains(c.sentences[0], "because")) << c.sentences[0];
  }
  CompareOptions interleaved;
  interleaved.paired = true;
  EXPECT_EQ(compare_runs(a, b, interleaved).noise.verdict, Verdict::b_faster);
  // A GPU's steps hardly need the CPU, but its clock.
  for (auto* r : {&a, &b}) r->device["kind"] = "cuda";
  EXPECT_EQ(verdict(a, b), Verdict::b_faster);
  a.documents["profile"]["clock_mhz"] = 1900;
  EXPECT_EQ(verdict(a, b), Verdict::cannot_tell);
  a.documents["profile"]["clock_mhz"] = 1940;
  EXPECT_EQ(verdict(a, b), Verdict::b_faster) << "2%";
}

TEST(ComparePartial, HostileNamesStayText) {
  Profile p = make_profile(partial_nano());
  for (auto& row : p.instrs) {
    row.op = "\x1b[2Jop\n", row.kernel = "<script>\x07", row.type = "f32[\x1b]";
    for (auto& s : row.scopes) s = "h.0.\x1b[31m" + s;
  }
  for (auto& b : p.memory.blocks) b.scope = "\x1b[1mscope\r", b.bytes *= 2;
  RunRecord r = record_of(p, "run \x1b]0;title\x07");
  r.recipe["model"] = "evil\x1b[5m";
  r.device["name"] = "dev\x9b";
  std::string text = compare_text(compare_runs(r, make_record(partial_nano())));
  for (char c : text) EXPECT_TRUE(c == '\n' || uint8_t(c) >= 0x20) << int(c);
  EXPECT_FALSE(contains(text, "\x9b\x39"));
  // As JSON it is a document whatever the names are.
  EXPECT_NO_THROW(
      to_json(compare_runs(r, make_record(partial_nano()))).dump(2, ' ', false, Json::error_handler_t::replace));
}

// The common part is not repeated if there is no room.
TEST(CompareText, TheTableOfRunsFitsTheWidth) {
  RunRecord a = make_record(partial_nano(), "profile-nano-bf16-pointwise-b4-t256"),
            b = make_record(partial_nano(), "profile-nano-bf16-unfused");
  a.device["name"] = b.device["name"] = "A CPU with a long name (2 threads, avx512)";
  std::string text = compare_text(compare_runs(a, b), {.top = 3, .width = 80, .color = false});
  size_t shared = text.find("same in all rows: device A CPU with"), table = text.find("tokens/s", shared),
         run = text.find("unfused", table);
  ASSERT_NE(shared, std::string::npos) << text;
  ASSERT_NE(run, std::string::npos) << text;
  EXPECT_LE(text.find('\n', run) - text.rfind('\n', run), 81u) << text;
  EXPECT_FALSE(
      contains(compare_text(compare_runs(a, b), {.top = 3, .width = 140, .color = false}), "all rows: device"));
}

TEST(CompareText, ReadsFromTheSentenceDown) {
  Synthetic a = partial_nano(), b = partial_nano();
  a.recipe.attention = "naive";
  RunComparison c = compare_runs(make_record(a, "slow one"), make_record(b, "fast one"));
  std::string text = compare_text(c, {.top = 3, .width = 100, .color = false});
  size_t at = 0;
  for (const char* part : {"B is ", "One change: attention (naive -> flash)", "slow one", "Where the time went",
                           "Causes", "Memory", "Notes"}) {
    size_t next = text.find(part, at);
    ASSERT_NE(next, std::string::npos) << part << " after " << at << "\n" << text;
    at = next;
  }
  EXPECT_FALSE(contains(text, "\x1b"));
}

// Nothing is said twice: in a sentence and a table, in two notes, or with digits that nobody needs.
TEST(CompareText, SaysEachThingOnce) {
  auto times = [](const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  };
  Synthetic a = partial_nano(), b = partial_nano();
  a.recipe.attention = "naive";
  RunRecord x = make_record(a), y = make_record(b);
  x.recipe["lr"] = 0.0005196152423, y.recipe["lr"] = 0.0007348469228;
  RunComparison c = compare_runs(x, y);
  std::string text = compare_text(c, {.top = 3, .width = 200, .color = false});
  EXPECT_TRUE(contains(text, "Changes: attention (naive -> flash), lr (0.0005196 -> 0.0007348).")) << text;
  EXPECT_FALSE(contains(text, "What differs")) << text;
  ASSERT_FALSE(c.memory_causes.empty());
  EXPECT_EQ(times(text, c.memory_causes[0].sentence), 1u) << text;
  EXPECT_LE(times(text, "Peak of "), contains(text, "Peak of both") ? 1u : 2u) << text;
  EXPECT_EQ(times(text, "oise floor 1.0%"), 1u) << text;
  y.recipe["lr"] = 0.00051961524;  // as many digits as tell them apart
  EXPECT_TRUE(contains(compare_text(compare_runs(x, y), {.width = 200}), "lr (0.000519615242 -> 0.00051961524)"));
  y.recipe["warmup"] = 7, x.recipe["warmup"] = 8, y.recipe["clip"] = 0.5, x.recipe["clip"] = 1.0, y.recipe["seed"] = 3,
  x.recipe["seed"] = 4;
  text = compare_text(compare_runs(x, y), {.width = 200});
  EXPECT_TRUE(contains(text, "Changes: 5 settings.")) << text;
  EXPECT_TRUE(contains(text, "What differs")) << "too many for a sentence";
  RunComparison neither = compare_runs(bench_run(a), bench_run(b));
  ASSERT_TRUE(any_contains(neither.notes, "A and B have no profiles"));
  EXPECT_FALSE(any_contains(neither.notes, "A has no profile"));
  EXPECT_TRUE(any_contains(neither.notes, "--attention naive")) << "a command for each";
}
