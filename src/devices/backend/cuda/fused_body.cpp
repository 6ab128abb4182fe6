#include "backend/cuda/fused_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "ops/index.h"
#include "program/op.h"

namespace crest::cuda {

namespace {

struct Known {
  std::string_view name;
  size_t inputs;
};
// In the order of FusedBody::Op.
#define CREST_KNOW(op, inputs, outputs) {#op, in::op::count},
constexpr Known known[] = {CREST_POINTWISE_OPS(CREST_KNOW)};
#undef CREST_KNOW

class Flattener {
 public:
  explicit Flattener(const Program& body) : p_(body) {}

  FusedBody run(std::string& why) {
    const Value& first = p_.at(p_.code.at(0).in.at(0));
    body_.numel = first.numel();
    body_.columns = first.shape.rank() ? std::max<int64_t>(first.shape.back(), 1) : 1;
    for (const Instr& i : p_.code)
      if (why = take(i); !why.empty()) return {};
    for (size_t o = 0; o < p_.outputs.size(); ++o)
      if (!is_sum(p_.outputs[o])) body_.stores.push_back({int(o), p_.at(p_.outputs[o]).dtype, use(p_.outputs[o])});
    for (const Instr* i : sums_) {
      auto o = std::find(p_.outputs.begin(), p_.outputs.end(), i->out[out::bias_grad::db]);
      if (o == p_.outputs.end()) why = "bias_grad inside a body must be one of its outputs";
      int acc = -1;
      if (i->in.size() > in::bias_grad::acc && i->in[in::bias_grad::acc] != no_value) {
        acc = input_index(i->in[in::bias_grad::acc]);
        if (acc < 0) why = "the sum so far of a bias_grad inside a body must be one of its inputs";
      }
      body_.sums.push_back(
          {int(o - p_.outputs.begin()), p_.at(i->out[out::bias_grad::db]).dtype, acc, use(i->in[in::bias_grad::dy])});
    }
    number_registers();
    return std::move(body_);
  }

 private:
  std::string take(const Instr& i) {
    std::string_view op = i.op->name;
    if (op == "bias_grad") {
      sums_.push_back(&i);
      return "";
    }
    if (op == "cast") {
      register_[i.out[out::cast::y]] = use(i.in[in::cast::x]);
      return "";
    }
    auto* k = std::find_if(std::begin(known), std::end(known), [&](const Known& x) { return x.name == op; });
    if (k == std::end(known)) return fmt::format("operation {} is not one that fused CUDA kernels know", op);
    FusedBody::Step s{FusedBody::Op(k - std::begin(known)), use(i.in[0]), 0, 0};
    s.b = k->inputs == 2 ? use(i.in[1]) : s.a;
    if (i.attrs.has("value")) s.value = float(i.attrs.number("value"));
    register_[i.out[0]] = first_step + int(body_.steps.size());
    body_.steps.push_back(s);
    return "";
  }
  bool is_sum(ValueId v) const {
    return std::any_of(sums_.begin(), sums_.end(), [&](const Instr* i) { return i->out[out::bias_grad::db] == v; });
  }
  int input_index(ValueId v) const {
    auto it = std::find(p_.inputs.begin(), p_.inputs.end(), v);
    return it == p_.inputs.end() ? -1 : int(it - p_.inputs.begin());
  }
  // The register of a value; an input gets its load at the first use.
  int use(ValueId v) {
    auto it = register_.find(v);
    if (it != register_.end()) return it->second;
    body_.loads.push_back({input_index(v), p_.at(v).dtype});
    return register_[v] = int(body_.loads.size()) - 1;
  }
  // Steps come behind the loads, and only now their number is known.
  void number_registers() {
    auto move = [&](int& r) {
      if (r >= first_step) r += int(body_.loads.size()) - first_step;
    };
    for (auto& s : body_.steps) move(s.a), move(s.b);
    for (auto& s : body_.stores) move(s.from);
    for (auto& s : body_.sums) move(s.from);
  }

  static constexpr int first_step = 1 << 20;
  const Program& p_;
  FusedBody body_;
  std::vector<const Instr*> sums_;
  std::unordered_map<ValueId, int> register_;
};

}  // namespace

const char* name(FusedBody::Op op) { return known[size_t(op)].name.data(); }

FusedBody flatten_body(const Instr& instr, std::string& why) { return Flattener(*instr.body).run(why); }

int vector_width(const FusedBody& body) {
  int64_t width = 8, streams = int64_t(body.loads.size() + body.sums.size());
  auto fit = [&](DType t) { width = std::min<int64_t>(width, int64_t(16 / size_of(t))); };
  for (auto& l : body.loads) fit(l.dtype);
  for (auto& s : body.stores) fit(s.dtype);
  while (width > 1 && width * streams > 64) width /= 2;  // all inputs of a vector are in registers at once
  if (!body.sums.empty())
    while (body.columns % width) width /= 2;
  return int(width);
}

ColumnGrid column_grid(const FusedBody& body, int width, int widest, const Device& device) {
  auto tiles = [&](int w, int* tx) {
    int64_t vectors = body.columns / w;
    for (*tx = 1; *tx < 32 && *tx < vectors;) *tx *= 2;
    return (vectors + *tx - 1) / *tx;
  };
  ColumnGrid g;
  int64_t widest_tiles = tiles(widest, &g.tx);
  int64_t ty = fused_threads / g.tx;
  // About four rounds of four resident blocks a multiprocessor: enough to even out their speed, and
  // partial sums stay far below a percent of the traffic. A thread has two rows at least.
  int64_t blocks = int64_t(device.multiprocessors > 0 ? device.multiprocessors : 132) * 16;
  int64_t most = std::max<int64_t>(body.rows() / (2 * ty), 1);
  g.slabs = std::clamp<int64_t>(blocks / widest_tiles, 1, std::min<int64_t>(most, 65535));
  g.slab = (body.rows() + g.slabs - 1) / g.slabs;
  g.slab = std::max<int64_t>((g.slab + ty - 1) / ty * ty, 1);
  g.slabs = std::max<int64_t>((body.rows() + g.slab - 1) / g.slab, 1);
  g.tiles = tiles(width, &g.tx);
  g.ty = fused_threads / g.tx;
  return g;
}

size_t partial_bytes(const FusedBody& body, int widest, const Device& device) {
  if (body.sums.empty()) return 0;
  return body.sums.size() * size_t(column_grid(body, widest, widest, device).slabs * body.columns) * sizeof(float);
}

}  // namespace crest::cuda
