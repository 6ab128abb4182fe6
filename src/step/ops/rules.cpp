#include "ops/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/scalars.h"

namespace crest::rules {

static std::string describe(const Infer& c, size_t i) {
  const Value& v = c.in(i);
  return fmt::format("input {} ({}: {}[{}])", i, v.name, name(v.dtype), v.shape.text());
}

void inputs(const Infer& c, size_t least, size_t most) {
  if (c.inputs() < least || c.inputs() > most)
    c.reject(least == most ? fmt::format("needs {} inputs, got {}", least, c.inputs())
                           : fmt::format("needs {} to {} inputs, got {}", least, most, c.inputs()));
  for (size_t i = 0; i < least; ++i)
    if (!c.has(i)) c.reject(fmt::format("input {} is required", i));
}

void contiguous(const Infer& c, std::initializer_list<size_t> views) {
  auto& pitched = c.op().pitched_in;
  for (size_t i = 0; i < c.inputs(); ++i) {
    if (!c.has(i) || std::find(views.begin(), views.end(), i) != views.end() || c.in(i).contiguous()) continue;
    bool rows = std::find(pitched.begin(), pitched.end(), int(i)) != pitched.end();
    if (rows && c.in(i).pitch() > 0) continue;
    c.reject(fmt::format("{} must {}, but has strides [{}]", describe(c, i),
                         rows ? "have dense rows at equal distances" : "be contiguous", c.in(i).layout.strides.text()));
  }
}

void floating(const Infer& c, size_t i) {
  if (!is_float(c.in(i).dtype)) c.reject(describe(c, i) + " must have a floating-point dtype");
}

void dtype(const Infer& c, size_t i, DType expected) {
  if (c.in(i).dtype != expected) c.reject(fmt::format("{} must be {}", describe(c, i), name(expected)));
}

void rank(const Infer& c, size_t i, int expected) {
  if (c.in(i).shape.rank() != expected) c.reject(fmt::format("{} must have {} dimensions", describe(c, i), expected));
}

void at_least_rank(const Infer& c, size_t i, int expected) {
  if (c.in(i).shape.rank() < expected)
    c.reject(fmt::format("{} must have at least {} dimensions", describe(c, i), expected));
}

void shape(const Infer& c, size_t i, const Shape& expected) {
  if (!(c.in(i).shape == expected)) c.reject(fmt::format("{} must have shape [{}]", describe(c, i), expected.text()));
}

void positions(const Infer& c, size_t i, const Shape& of) {
  dtype(c, i, DType::i32);
  shape(c, i, {of[0], of[1]});
}

void scalars(const Infer& c, size_t i) {
  if (c.in(i).dtype != DType::u8 || !(c.in(i).shape == Shape{int64_t(sizeof(Scalars))}))
    c.reject(fmt::format("{} must be the step's scalars, u8[{}]", describe(c, i), sizeof(Scalars)));
}

static void present(const Infer& c, std::string_view key) {
  if (!c.attrs().has(key)) c.reject(fmt::format("attribute '{}' is missing", key));
}

int64_t integer(const Infer& c, std::string_view key, int64_t least) {
  present(c, key);
  int64_t x = c.attrs().integer(key);
  if (x < least) c.reject(fmt::format("attribute '{}' is {}, but must be at least {}", key, x, least));
  return x;
}

double number(const Infer& c, std::string_view key) {
  present(c, key);
  double x = c.attrs().number(key);
  if (!(x == x)) c.reject(fmt::format("attribute '{}' is not a number", key));
  return x;
}

void dropout(const Infer& c, size_t i) {
  scalars(c, i);
  double p = number(c, "p");
  c.check(p >= 0 && p < 1, "attribute 'p' must be in [0, 1)");
  integer(c, "rng_id", 0);
}

bool drops(const Infer& c, size_t i) {
  if (c.has(i)) dropout(c, i);
  c.check(c.has(i) || !c.attrs().has("p"), "attribute 'p' needs the step's scalars");
  return c.has(i);
}

bool flag(const Infer& c, std::string_view key, bool otherwise) {
  int64_t x = c.attrs().integer(key, otherwise);
  if (x != 0 && x != 1) c.reject(fmt::format("attribute '{}' is {}, but must be 0 or 1", key, x));
  return x == 1;
}

int64_t window(const Infer& c) { return c.attrs().has("window") ? integer(c, "window", 1) : 0; }

void out_sum(Infer& c, size_t acc, DType t, const Shape& s) {
  if (!is_float(t)) c.reject(fmt::format("attribute 'dtype' is {}, but must be a floating-point dtype", name(t)));
  if (!c.has(acc)) return c.out(t, s);
  dtype(c, acc, t);
  shape(c, acc, s);
  c.out_in_place(acc);
}

Heads heads(const Infer& c, size_t i, int64_t least_kv_heads) {
  rank(c, i, 3);
  floating(c, i);
  const Shape& s = c.in(i).shape;
  int64_t h = integer(c, "heads", 1), kv = integer(c, "kv_heads", least_kv_heads);
  if (kv > 0 && h % kv != 0) c.reject(fmt::format("{} heads cannot be shared by {} key/value heads", h, kv));
  int64_t slots = h + 2 * kv;
  if (s.back() % slots != 0 || s.back() == 0)
    c.reject(fmt::format("{}: the width is not a multiple of {} heads ({} query, 2 x {} key/value)", describe(c, i),
                         slots, h, kv));
  return {s[0], s[1], h, kv, s.back() / slots};
}

}  // namespace crest::rules
