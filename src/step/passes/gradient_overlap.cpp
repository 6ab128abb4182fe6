// Setting --gradient-overlap: gradients of parameters run on a stream of their own. The rest of the
// backward pass never reads them, and with few tokens it leaves multiprocessors of a GPU idle.
#include <algorithm>

#include "passes/pass.h"
#include "passes/rewrite.h"
#include "program/op.h"

namespace crest {

namespace {

// By instruction: whether its results are gradients of parameters, or values recomputed for such
// instructions only. Nothing else in the backward pass reads these gradients. Other readers (the
// next micro step, collectives, the update) wait for their addresses.
std::vector<bool> makes_gradients_only(const Program& p) {
  const std::vector<std::vector<int>> readers = p.consumers();
  std::vector<bool> only(p.code.size(), false);
  for (size_t i = p.code.size(); i-- > 0;) {
    const Instr& instr = p.code[i];
    const bool backward = instr.phase == Phase::backward, recompute = instr.phase == Phase::recompute;
    if (!(backward || recompute) || instr.stream != Stream::compute || instr.out.empty()) continue;
    if (instr.op->op_class == OpClass::communication) continue;
    only[i] = std::all_of(instr.out.begin(), instr.out.end(), [&](ValueId v) {
      const auto& all = readers[size_t(v)];
      if (backward) return p.at(v).role == Role::gradient;
      return !all.empty() && std::all_of(all.begin(), all.end(), [&](int r) { return only[size_t(r)]; });
    });
  }
  return only;
}

// Whether the rest of the backward pass has so little work in each instruction that it leaves
// multiprocessors idle. gpt2-124M on an H200: with 1 to 4 sequences of 1024 tokens (4 to 16 us)
// steps are 2 to 3% faster with the overlap, with 8 (32 us) they are not. Next to collectives and
// in fp8 nothing was measured (docs/results/h200/small_steps.md).
bool leaves_room(const Program& p, const std::vector<bool>& only, const PassContext& context) {
  if (std::any_of(p.values.begin(), p.values.end(), [](const Value& v) { return is_fp8(v.dtype); })) return false;
  constexpr double small_seconds = 20e-6;
  double seconds = 0;
  int count = 0;
  for (size_t i = 0; i < p.code.size(); ++i) {
    const Instr& instr = p.code[i];
    if (instr.op->op_class == OpClass::communication) return false;
    if (only[i] || instr.phase != Phase::backward || instr.op->op_class == OpClass::movement) continue;
    seconds += context.seconds_for(p, instr), ++count;
  }
  return seconds < small_seconds * count;
}

}  // namespace

void overlap_gradients(Program& program, const PassContext& context) {
  const std::string when = context.setting("gradient-overlap");
  if (context.kind != ProgramKind::train || !context.concurrent_kernels || when == "off") return;
  const std::vector<bool> only = makes_gradients_only(program);
  if (when == "auto" && !(context.seconds_for && leaves_room(program, only, context))) return;
  for (size_t i = 0; i < only.size(); ++i)
    if (only[i]) program.code[i].stream = Stream::gradients;
}

const std::vector<Setting>& gradient_overlap_settings() {
  static const std::vector<Setting> rows = {pass_setting(
      {.name = "gradient-overlap",
       .group = "Kernels and passes",
       .help = "on a GPU, run gradients of parameters at the same time as the rest of the backward pass: on, "
               "off, or auto: if that pass leaves multiprocessors idle, as with few tokens on one GPU. Results stay "
               "the same, bit for bit",
       .default_value = "auto",
       .choices = {"auto", "on", "off"},
       .newer = true,
       .resume = OnResume::accepts,
       .effects = {{Effect::all, Effect::anywhere, {}, nullptr, true}}})};
  return rows;
}

}  // namespace crest
