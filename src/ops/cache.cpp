// Keys and values of decoding: cache[B,2,kv_heads,C,D], C positions.
#include "ops/index.h"
#include "ops/rules.h"

namespace crest {

static rules::Heads check_cache(const Infer& c) {
  rules::inputs(c, 3, 3);
  rules::contiguous(c);
  auto h = rules::heads(c, 0);
  rules::rank(c, 1, 5);
  rules::shape(c, 1, {h.batch, 2, h.kv_heads, c.in(1).shape[3], h.head_dim});
  c.check(c.in(1).shape[3] >= h.seq, "the cache holds fewer positions than the tokens of one call");
  c.same_dtype(1, 0);
  rules::scalars(c, 2);
  return h;
}

static void infer_append(Infer& c) {
  check_cache(c);
  c.out_in_place(1);
}

static void infer_attention(Infer& c) {
  auto h = check_cache(c);
  rules::number(c, "scale");
  c.out(c.in(0).dtype, {h.batch, h.seq, h.heads * h.head_dim});
}

// Copies the key and value heads of the new tokens, not the whole cache.
static Cost cost_append(const Program& p, const Instr& i) {
  const Value& qkv = p.at(i.in[0]);
  double heads = double(i.attrs.integer("heads")), kv = double(i.attrs.integer("kv_heads"));
  double moved = double(qkv.bytes()) * 2 * kv / (heads + 2 * kv);
  Cost c;
  c.bytes_read = c.bytes_written = moved;
  return c;
}

// The position is known only on the device: the cost is that of a full cache.
static Cost cost_attention(const Program& p, const Instr& i) {
  return traffic_with_flops(p, i, 4.0 * double(p.at(i.out[0]).numel()) * double(p.at(i.in[1]).shape[3]));
}

const OpDef op_cache_append = {
    .name = "cache_append",
    .help = "qkv[B,T,W], cache[B,2,kv_heads,C,D], scalars -> cache with the tokens' keys and values",
    .op_class = OpClass::movement,
    .infer = infer_append,
    .cost = cost_append};

const OpDef op_cached_attention = {
    .name = "cached_attention",
    .help = "qkv[B,T,W], cache, scalars -> o[B,T,heads*D]: causal attention over the cache",
    .op_class = OpClass::attention,
    .infer = infer_attention,
    .cost = cost_attention};

}  // namespace crest
