// Setting --grad-accumulation: the loss is divided by the number of micro steps. Later micro steps
// add to the gradients and the loss of earlier ones through the operations' accumulator inputs.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "passes/shard.h"

namespace crest {

// Adds `before` as accumulator to the first addend of the sum v.
static void thread_through(Program& program, const std::vector<int>& producers, ValueId v, ValueId before) {
  for (;;) {
    Instr& instr = program.code[size_t(producers[size_t(v)])];
    int acc = -1;
    for (auto& a : instr.op->accumulators)
      if (size_t(a.out) < instr.out.size() && instr.out[size_t(a.out)] == v) acc = a.in;
    if (acc < 0) fail_internal(fmt::format("{} cannot accumulate", instr.op->name), program.at(v).name);
    if (instr.in.size() <= size_t(acc)) instr.in.resize(size_t(acc) + 1, no_value);
    if (instr.in[size_t(acc)] == no_value) {
      instr.in[size_t(acc)] = before;
      return;
    }
    v = instr.in[size_t(acc)];
  }
}

// Uses the accumulator inputs of operations.
static void add_in_kernels(Program& program, const std::vector<ValueId>& sums) {
  std::vector<int> producers = program.producers();
  Builder b(program);
  for (ValueId v : sums) {
    std::string sum = program.at(v).name;
    program.at(v).name = sum + ".sum";
    ValueId before =
        b.declare("before." + sum, program.at(v).dtype, program.at(v).shape, program.at(v).role, Lifetime::step);
    program.at(before).name = sum;
    thread_through(program, producers, v, before);
  }
  reinfer(program);
}

// --deterministic: a micro step computes its gradients alone, then adds them to the sum. Ranks add
// gradients in the same order, so N micro steps and N ranks give bitwise identical results.
static void add_apart(Program& program, const std::vector<ValueId>& sums) {
  Rewriter w(program);
  for (const Instr& instr : w.old) {
    w.keep(instr);
    for (ValueId v : instr.out) {
      if (std::find(sums.begin(), sums.end(), v) == sums.end()) continue;
      const Value own = program.at(v);
      program.at(v).name = own.name + ".own", program.at(v).role = Role::activation;
      program.at(v).lifetime = Lifetime::micro_step;
      Builder& b = w.build(instr);
      ValueId before = b.declare("before." + own.name, own.dtype, own.shape, own.role, Lifetime::step);
      program.at(before).name = own.name;
      ValueId sum = b.emit1("add", {before, v}, Attrs().set("in_place", 1));
      program.at(sum).name = own.name + ".sum";
      w.replace(v, sum);
    }
  }
  w.finish();
}

void accumulate(Program& program, const PassContext& context) {
  if (context.kind != ProgramKind::train) return;
  program.properties.set("first", context.first).set("last", context.last);
  if (context.recipe.grad_accumulation == 1) return;
  scale_loss(program, 1.0 / double(context.recipe.grad_accumulation));
  std::vector<ValueId> sums = program.outputs;        // loss and gradients
  if (sharding_of(context) >= Sharding::gradients) {  // the ranks' sum of gradients accumulates instead
    const std::set<ValueId> whole = gradients_of_two_stages(program);
    std::erase_if(sums, [&](ValueId v) {
      return program.at(v).role == Role::gradient && !whole.count(program.at(v).layout.storage);
    });
  }
  for (ValueId v : sums) {
    Value& value = program.at(v);
    value.lifetime = Lifetime::step;
  }
  if (context.first) return;
  if (context.recipe.deterministic)
    add_apart(program, sums);
  else
    add_in_kernels(program, sums);
  for (size_t v = 0; v < program.values.size(); ++v) {  // versions live as long as their storage
    Value& value = program.values[v];
    const Value& root = program.at(value.layout.storage);
    if (value.layout.storage != ValueId(v) && root.lifetime == Lifetime::step)
      value.lifetime = root.lifetime, value.role = root.role;
  }
}

const std::vector<Setting>& accumulate_settings() {
  static const std::vector<Setting> rows = {
      setting<&Recipe::grad_accumulation>({.name = "grad-accumulation",
                                           .group = "Model and batch",
                                           .help = "micro batches per optimizer step",
                                           .min = 1,
                                           .max = 1e9,
                                           .common = true,
                                           .effects = {{Effect::all, Effect::calls, {}, nullptr, true}}})};
  return rows;
}

}  // namespace crest
