// Tensors in `ranks` equal parts. Every rank has the part with its number: its shard.
#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "ops/collectives.h"
#include "ops/index.h"
#include "ops/rules.h"

namespace crest {

namespace {

// The shape of a shard of input i.
Shape shard_of(const Infer& c, size_t i) {
  int64_t ranks = rules::integer(c, "ranks", 2), n = c.in(i).numel();
  c.check(n % ranks == 0, "the ranks must divide the elements");
  return {n / ranks};
}

void infer_reduce_scatter(Infer& c) {
  rules::inputs(c, 1, 2);
  rules::contiguous(c);
  rules::floating(c, in::reduce_scatter::x);
  Shape shard = shard_of(c, in::reduce_scatter::x);
  if (!c.has(in::reduce_scatter::acc)) return c.out(c.in(in::reduce_scatter::x).dtype, shard);
  c.same_dtype(in::reduce_scatter::x, in::reduce_scatter::acc);
  rules::shape(c, in::reduce_scatter::acc, shard);
  c.out_in_place(in::reduce_scatter::acc);
}

void infer_own_share(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  c.out(c.in(in::own_share::x).dtype, shard_of(c, in::own_share::x));
}

void infer_all_gather(Infer& c) {
  c.check(c.inputs() >= 1, "needs a shard");
  rules::contiguous(c);
  if (!c.has(in::all_gather::into)) {
    c.check(c.inputs() <= in::all_gather::members, "members need 'into'");
    const Value& shard = c.in(in::all_gather::shard);
    return c.out(shard.dtype, {shard.numel() * rules::integer(c, "ranks", 2)});
  }
  c.same_dtype(in::all_gather::shard, in::all_gather::into);
  rules::shape(c, in::all_gather::shard, shard_of(c, in::all_gather::into));
  for (size_t i = in::all_gather::members; i < c.inputs(); ++i)
    c.check(c.in(i).layout.storage == c.in(in::all_gather::shard).layout.storage, "a member is not in the shard");
  c.out_in_place(in::all_gather::into);
}

void infer_square_sum(Infer& c) {
  rules::inputs(c, 1, c.inputs());
  rules::contiguous(c);
  for (size_t i = 0; i < c.inputs(); ++i) rules::floating(c, i);
  c.out(DType::f64, {1});
}

Cost sum_cost(const Program& p, const Instr& i) {
  double n = 0;
  for (ValueId v : i.in) n += double(p.at(v).numel());
  return traffic_with_flops(p, i, 2 * n);
}

Cost shard_cost(const Program& p, const Instr& i) {
  auto bytes = double(p.at(i.out[0]).bytes());
  return {0, bytes, bytes};
}

Cost gather_cost(const Program& p, const Instr& i) {
  return {0, double(p.at(i.in[in::all_gather::shard]).bytes()), double(p.at(i.out[out::all_gather::y]).bytes())};
}

}  // namespace

std::vector<Padding> padding_of(const Instr& instr) {
  std::vector<Padding> padding;
  if (!instr.attrs.has("gaps")) return padding;
  for (auto& text : split(instr.attrs.text("gaps"), ',')) {
    size_t colon = text.find(':');
    padding.push_back({std::stoll(text.substr(0, colon)), std::stoll(text.substr(colon + 1))});
  }
  return padding;
}

std::string padding_text(const std::vector<Padding>& padding) {
  std::string text;
  for (auto& g : padding) text += fmt::format("{}{}:{}", text.empty() ? "" : ",", g.begin, g.end);
  return text;
}

const OpDef op_reduce_scatter = {
    .name = "reduce_scatter",
    .inputs = in::reduce_scatter::names,
    .outputs = out::reduce_scatter::names,
    .help = "x, [acc] -> shard: this rank's shard of the sum over the ranks, added to acc in place; x is lost",
    .op_class = OpClass::communication,
    .infer = infer_reduce_scatter,
    .cost = sum_cost};

const OpDef op_all_gather = {.name = "all_gather",
                             .inputs = in::all_gather::names,
                             .outputs = out::all_gather::names,
                             .help =
                                 "shard, [into], [members] -> y: the shards of all ranks, in place of `into` if it is "
                                 "given, once the members of the shard are written",
                             .op_class = OpClass::communication,
                             .infer = infer_all_gather,
                             .cost = gather_cost};

const OpDef op_own_share = {.name = "own_share",
                            .inputs = in::own_share::names,
                            .outputs = out::own_share::names,
                            .help = "x -> shard: a copy of this rank's shard",
                            .op_class = OpClass::movement,
                            .infer = infer_own_share,
                            .cost = shard_cost};

const OpDef op_square_sum = {.name = "square_sum",
                             .inputs = in::square_sum::names,
                             .outputs = out::square_sum::names,
                             .help = "shard1, shard2, .. -> sum f64[1]: this rank's part of the squared norm",
                             .op_class = OpClass::reduction,
                             .infer = infer_square_sum,
                             .cost = sum_cost};

}  // namespace crest
