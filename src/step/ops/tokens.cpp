// Sequences shared along the axis context: each rank has two chunks of every sequence
// (Placement::chunks). Keys and values of all tokens are gathered in the order of the sequence; the
// gradient of a gather is the sum of the ranks' gradients, of which each gets its own tokens.
#include "ops/index.h"
#include "ops/rules.h"
#include "program/builder.h"
#include "program/place.h"

namespace crest {

namespace {

void infer_split(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  const rules::Heads h = rules::heads(c, in::split_keys::qkv);
  const DType t = c.in(in::split_keys::qkv).dtype;
  c.out(t, {h.batch, h.seq, h.heads * h.head_dim});
  c.out(t, {h.batch, h.seq, 2, h.kv_heads * h.head_dim});
}

void infer_join(Infer& c) {
  rules::inputs(c, 2, 2);
  rules::contiguous(c);
  rules::rank(c, in::join_keys::q, 3);
  rules::floating(c, in::join_keys::q);
  rules::rank(c, in::join_keys::kv, 4);
  c.same_dtype(in::join_keys::kv, in::join_keys::q);
  const Shape &q = c.in(in::join_keys::q).shape, &kv = c.in(in::join_keys::kv).shape;
  rules::shape(c, in::join_keys::kv, {q[0], q[1], 2, kv[3]});
  const int64_t heads = rules::integer(c, "heads", 1), kv_heads = rules::integer(c, "kv_heads", 1);
  c.check(q[2] * kv_heads == kv[3] * heads, "q and kv differ in the size of a head");
  c.out(c.in(in::join_keys::q).dtype, {q[0], q[1], q[2] + 2 * kv[3]});
}

void check_tokens(const Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::rank(c, 0, 4);
  rules::floating(c, 0);
}

void infer_gather(Infer& c) {
  check_tokens(c);
  const Value& x = c.in(in::gather_tokens::x);
  c.check(x.shape[1] % 2 == 0, "a rank has two chunks of each sequence");
  c.out(x.dtype, {x.shape[0], x.shape[1] * rules::integer(c, "ranks", 2), x.shape[2], x.shape[3]});
}

void infer_scatter(Infer& c) {
  check_tokens(c);
  const Value& x = c.in(in::scatter_tokens::x);
  const int64_t ranks = rules::integer(c, "ranks", 2);
  c.check(x.shape[1] % (2 * ranks) == 0, "the ranks have two equal chunks of each sequence");
  c.out(x.dtype, {x.shape[0], x.shape[1] / ranks, x.shape[2], x.shape[3]});
}

void infer_positions(Infer& c) {
  rules::inputs(c, 1, 1);
  rules::contiguous(c);
  rules::rank(c, in::token_positions::ids, 2);
  rules::dtype(c, in::token_positions::ids, DType::i32);
  c.check(c.in(in::token_positions::ids).shape[1] % 2 == 0, "a rank has two chunks of each sequence");
  const int64_t ranks = rules::integer(c, "ranks", 2), tokens = rules::integer(c, "tokens", 1);
  c.check(tokens <= c.in(in::token_positions::ids).shape[1] * ranks, "more tokens than the ranks have");
  c.out_like(in::token_positions::ids);
}

Cost cost_of_copy(const Program& p, const Instr& i) {
  auto bytes = double(p.at(i.out[0]).bytes());
  return {0, bytes, bytes};
}

Cost cost_scatter(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, double(p.at(i.in[in::scatter_tokens::x]).numel()));
}

Attrs along(const Grad& g) {
  return Attrs().set("ranks", g.attrs().integer("ranks")).set("axes", g.attrs().text("axes"));
}

void grad_gather(Grad& g) {
  if (g.needs(in::gather_tokens::x))
    g.add(in::gather_tokens::x, g.builder().emit1("scatter_tokens", {g.dout(out::gather_tokens::y)}, along(g)));
}

void grad_split(Grad& g) {
  if (g.needs(in::split_keys::qkv))
    g.add(in::split_keys::qkv,
          g.builder().emit1("join_keys", {g.dout(out::split_keys::q), g.dout(out::split_keys::kv)}, g.attrs()));
}

constexpr Placement chunks = Placement::chunks(1, 1);

}  // namespace

const OpDef op_split_keys = {.name = "split_keys",
                             .inputs = in::split_keys::names,
                             .outputs = out::split_keys::names,
                             .help = "qkv[B,T,W] -> q[B,T,heads D], kv[B,T,2,kv_heads D]: copies",
                             .op_class = OpClass::movement,
                             .infer = infer_split,
                             .place = cut<"BTh -> BTH, BTPH; B T H">,
                             .cost = traffic,
                             .grad = grad_split,
                             .cheap = true};

const OpDef op_join_keys = {.name = "join_keys",
                            .inputs = in::join_keys::names,
                            .outputs = out::join_keys::names,
                            .help = "q[B,T,heads D], kv[B,T,2,kv_heads D] -> qkv[B,T,W]: inverse of split_keys",
                            .op_class = OpClass::movement,
                            .infer = infer_join,
                            .place = cut<"BTH, BTPH -> BTh; B T H">,
                            .cost = traffic};

const OpDef op_gather_tokens = {.name = "gather_tokens",
                                .inputs = in::gather_tokens::names,
                                .outputs = out::gather_tokens::names,
                                .help = "x[B,T / ranks,2,C] -> y[B,T,2,C]: the tokens of all ranks, in order",
                                .op_class = OpClass::communication,
                                .infer = infer_gather,
                                .place = cut<"BTPH -> BTPH; B H">,
                                .exchange = Exchange{chunks, Placement()},
                                .cost = cost_of_copy,
                                .grad = grad_gather};

const OpDef op_scatter_tokens = {
    .name = "scatter_tokens",
    .inputs = in::scatter_tokens::names,
    .outputs = out::scatter_tokens::names,
    .help = "x[B,T,2,C] -> y[B,T / ranks,2,C]: this rank's tokens of the sum over the ranks; x is lost",
    .op_class = OpClass::communication,
    .infer = infer_scatter,
    .place = cut<"BTPH -> BTPH; B H">,
    .exchange = Exchange{Placement::partial(), chunks, true},
    .cost = cost_scatter};

const OpDef op_token_positions = {
    .name = "token_positions",
    .inputs = in::token_positions::names,
    .outputs = out::token_positions::names,
    .help = "ids i32[B,T / ranks] -> i32[B,T / ranks]: where in its sequence each of this rank's tokens is",
    .op_class = OpClass::movement,
    .infer = infer_positions,
    .place = cut<"BT -> BT; B">,
    .exchange = Exchange{chunks, chunks},
    .cost = cost_of_copy};

}  // namespace crest
