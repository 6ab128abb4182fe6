// Keys and values for decoding: cache[B,2,kv_heads,C,D], C positions.
#include <algorithm>

#include "ops/attention.h"
#include "ops/index.h"
#include "ops/rules.h"
#include "program/place.h"

namespace crest {

static rules::Heads check_cache(const Infer& c) {
  rules::inputs(c, 3, 3);
  rules::contiguous(c);
  auto h = rules::heads(c, in::cache_append::qkv);
  rules::rank(c, in::cache_append::cache, 5);
  int64_t positions = c.in(in::cache_append::cache).shape[3];
  rules::shape(c, in::cache_append::cache, {h.batch, 2, h.kv_heads, positions, h.head_dim});
  c.check(positions >= h.seq, "the cache has fewer positions than one call has tokens");
  c.same_dtype(in::cache_append::cache, in::cache_append::qkv);
  rules::scalars(c, in::cache_append::scalars);
  return h;
}

static void infer_append(Infer& c) {
  check_cache(c);
  c.out_in_place(in::cache_append::cache);
}

static void infer_attention(Infer& c) {
  auto h = check_cache(c);
  rules::number(c, "scale");
  rules::window(c);
  c.out(c.in(in::cached_attention::qkv).dtype, {h.batch, h.seq, h.heads * h.head_dim});
}

// Copies the key and value heads of the new tokens, not the whole cache.
static Cost cost_append(const Program& p, const Instr& i) {
  const Value& qkv = p.at(i.in[in::cache_append::qkv]);
  double heads = double(i.attrs.integer("heads")), kv = double(i.attrs.integer("kv_heads"));
  double moved = double(qkv.bytes()) * 2 * kv / (heads + 2 * kv);
  Cost c;
  c.bytes_read = c.bytes_written = moved;
  return c;
}

// The position is known only on the device, so the cost assumes a full cache. A query sees its
// window; all queries together see the windows from the first to the last.
static Cost cost_attention(const Program& p, const Instr& i) {
  const Value &cache = p.at(i.in[in::cached_attention::cache]), &o = p.at(i.out[out::cached_attention::o]);
  int64_t positions = cache.shape[3], window = window_of(i.attrs, positions);
  if (!window) return traffic_with_flops(p, i, 4.0 * double(o.numel()) * double(positions));
  Cost c = traffic_with_flops(p, i, 4.0 * double(o.numel()) * double(window));
  int64_t unread = positions - std::min(window + o.shape[1] - 1, positions);
  c.bytes_read -= double(cache.bytes()) * double(unread) / double(positions);
  return c;
}

const OpDef op_cache_append = {
    .name = "cache_append",
    .inputs = in::cache_append::names,
    .outputs = out::cache_append::names,
    .help = "qkv[B,T,W], cache[B,2,kv_heads,C,D], scalars -> cache with the tokens' keys and values",
    .op_class = OpClass::movement,
    .infer = infer_append,
    .place = cut<"BTh, BXHCD, - -> BXHCD; B H">,
    .cost = cost_append};

const OpDef op_cached_attention = {
    .name = "cached_attention",
    .inputs = in::cached_attention::names,
    .outputs = out::cached_attention::names,
    .help = "qkv[B,T,W], cache, scalars -> o[B,T,heads*D]: causal attention over the cache, or over a window of it",
    .op_class = OpClass::attention,
    .infer = infer_attention,
    .place = cut<"BTh, BXHCD, - -> BTH; B H">,
    .cost = cost_attention};

}  // namespace crest
