// Mode perf: CREST_PERF=1 prints time, rates and the share of the roofline of every kernel. On the
// CPU the sizes are those of a small GPT-2 step, on a GPU they are large enough to fill it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "core/timer.h"
#include "ops/gpu.h"
#include "ops/harness.h"
#include "program/op.h"

namespace crest::test {

namespace {

struct List {
  DType t;
  std::vector<Case> cases = {};
  void add(const char* op, const std::string& name, std::vector<Arg> in, Attrs attrs = {}) {
    cases.push_back(
        {op, name + " " + std::string(crest::name(t)), std::move(in), std::move(attrs), nullptr, some_scalars()});
  }
};

constexpr DType f = DType::f32;

Attrs to_f32() { return Attrs().set("dtype", "f32"); }

void add_linears(List& list, const Shape& tokens, int64_t n, int64_t k) {
  int64_t rows = tokens.numel();
  Arg x = tensor(list.t, {tokens[0], tokens[1], k}), dy = tensor(list.t, {tokens[0], tokens[1], n}),
      w = tensor(list.t, {n, k}, 0.02);
  std::string size = fmt::format("{}x{}x{}", rows, n, k);
  list.add("linear", size, {x, w, tensor(list.t, {n})});
  list.add("linear_dx", fmt::format("{}x{}x{}", rows, k, n), {dy, w});
  list.add("linear_dw", fmt::format("{}x{}x{} acc", n, k, rows), {dy, x, tensor(f, {n, k})}, to_f32());
}

void add_attention(List& list, int64_t b, int64_t s, int64_t h, int64_t d) {
  Attrs attrs = Attrs().set("heads", h).set("kv_heads", h).set("scale", 1 / std::sqrt(double(d))).set("causal", 1);
  Arg qkv = tensor(list.t, {b, s, 3 * h * d}, 0.5), o = tensor(list.t, {b, s, h * d});
  std::string size = fmt::format("{}x{} {} heads of {}", b, s, h, d);
  list.add("attention", size, {qkv}, attrs);
  list.add("attention_grad", size, {o, qkv, o, positive(f, {b, h, s})}, attrs);
}

// As large as its tensors: `b` sequences of `s` tokens through a layer of GPT-2 124M.
void add_layer(List& list, int64_t b, int64_t s) {
  DType t = list.t;
  int64_t rows = b * s;
  Arg narrow = tensor(t, {b, s, 768}), wide = tensor(t, {b, s, 3072});
  auto size = [&](int64_t columns) { return fmt::format("{}x{}", rows, columns); };
  list.add("linear_gelu", fmt::format("{}x3072x768", rows), {narrow, tensor(t, {3072, 768}, 0.02), tensor(t, {3072})},
           Attrs().set("keep", 1));
  for (int64_t n : {768, 2304, 3072}) list.add("bias_grad", size(n), {tensor(t, {b, s, n})}, to_f32());
  for (const char* op : {"add", "mul", "gelu_grad", "gelu_erf_grad", "silu_grad", "relu_grad"})
    list.add(op, size(3072), {wide, wide});
  for (const char* op : {"gelu", "gelu_erf", "silu", "relu", "tanh"}) list.add(op, size(3072), {wide});
  for (DType to : {f, DType::bf16})
    list.add("cast", size(3072) + " to " + std::string(name(to)), {wide}, Attrs().set("dtype", name(to)));
  list.add("dropout", size(768), {narrow, scalars_arg()}, Attrs().set("p", 0.1).set("rng_id", 1));
  Attrs layer = Attrs().set("kind", "layer").set("eps", 1e-5);
  Arg gamma = tensor(t, {768}), statistic = positive(f, {rows});
  list.add("norm", size(768), {narrow, gamma, gamma}, layer);
  list.add("add_norm", size(768), {narrow, narrow, gamma, gamma}, layer);
  list.add("add_norm", size(768) + " dropout", {narrow, narrow, gamma, gamma, scalars_arg()},
           Attrs(layer).set("p", 0.1).set("rng_id", 1));
  list.add("norm_grad", size(768), {narrow, narrow, gamma, statistic, statistic, narrow, absent(), absent()},
           Attrs().set("kind", "layer").set("beta", 1).set("dtype", "f32"));
  list.add("norm_grad", size(768) + " bias", {narrow, narrow, gamma, statistic, statistic, narrow},
           Attrs().set("kind", "layer").set("beta", 1).set("bias", 1).set("dtype", "f32"));
  Attrs dropped = Attrs().set("kind", "layer").set("beta", 1).set("bias", 1).set("dtype", "f32").set("apart", 1);
  list.add("norm_grad", size(768) + " bias dropout",
           {narrow, narrow, gamma, statistic, statistic, narrow, absent(), absent(), absent(), absent(), scalars_arg()},
           dropped.set("p", 0.1).set("rng_id", 1));
  add_attention(list, b, s, 12, 64);
  Arg qkv = tensor(t, {b, s, 2304}, 0.5), head = tensor(t, {b, 12, s, 64}), scores = tensor(t, {b, 12, s, s});
  list.add("softmax", fmt::format("{}x12x{}x{}", b, s, s), {scores});
  list.add("softmax_grad", fmt::format("{}x12x{}x{}", b, s, s), {scores, scores});
  Attrs causal = Attrs().set("scale", 0.125).set("causal", 1);
  list.add("softmax", fmt::format("causal {}x12x{}x{}", b, s, s), {scores}, causal);
  list.add("softmax_grad", fmt::format("causal {}x12x{}x{}", b, s, s), {scores, scores}, causal);
  list.add("matmul", fmt::format("scores {}x12x{}x{}x64", b, s, s), {head, head}, Attrs().set("transpose_b", true));
  list.add("join_heads", size(2304), {head, head, head});
  list.add("rope", size(2304), {qkv}, Attrs().set("heads", 12).set("kv_heads", 12).set("theta", 10000.0));
}

// The update of a group with the matrices of up to 12 layers of GPT-2 124M at its end.
Case quantizing_update(const std::string& size, int64_t parameters) {
  constexpr int64_t of_layer = int64_t(12) * 768 * 768;
  const int64_t layers = std::min<int64_t>(parameters / of_layer, 12);
  std::vector<GroupMatrix> matrices;
  int64_t first = (parameters - layers * of_layer) / 64 * 64;
  for (int64_t l = 0; l < layers; ++l)
    for (auto [rows, columns] : {std::pair{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}}) {
      matrices.push_back({first, rows, columns, true, true});
      first += int64_t(rows) * columns;
    }
  return fused_update(size + " halves", parameters, matrices, f, Masters::halves, false);
}

void add_ends(List& list, int64_t b, int64_t s, int64_t parameters) {
  DType t = list.t;
  int64_t rows = b * s;
  Arg narrow = tensor(t, {b, s, 768});
  std::string tokens = fmt::format("{} of 50304x768", rows);
  list.add("embedding", tokens, {ids({b, s}, 50257), tensor(t, {50304, 768})});
  Attrs mask = Attrs().set("p", 0.1).set("rng_id", 1);
  list.add("embedding", tokens + " dropout", {ids({b, s}, 50257), tensor(t, {50304, 768}), scalars_arg()}, mask);
  list.add("embedding_grad", tokens, {ids({b, s}, 50257), narrow}, to_f32().set("rows", 50304));
  list.add("add_position", fmt::format("{}x768", rows), {narrow, tensor(t, {s, 768})});
  list.add("add_position", fmt::format("{}x768 dropout", rows), {narrow, tensor(t, {s, 768}), absent(), scalars_arg()},
           mask);
  list.add("position_grad", fmt::format("{}x768", rows), {narrow}, to_f32().set("rows", s));
  Attrs loss = Attrs().set("vocab", 50257).set("scale", 1 / double(rows));
  Arg logits = tensor(t, {rows, 50304}), labels = targets({rows}, 50257);
  list.add("cross_entropy", fmt::format("{}x50304", rows), {logits, labels}, loss);
  list.add("cross_entropy_grad", fmt::format("{}x50304", rows), {logits, labels, positive(f, {rows}), scalars_arg()},
           loss);
  list.add("cross_entropy_fused", fmt::format("{}x50304", rows), {logits, labels, scalars_arg()}, loss);
  Arg group = tensor(f, {parameters});
  std::string size = fmt::format("{} Mi", parameters >> 20);
  list.add("grad_norm", size, {scalars_arg(), group}, Attrs().set("clip", 1.0));
  Attrs adam = Attrs().set("beta1", 0.9).set("beta2", 0.95).set("eps", 1e-8).set("weight_decay", 0.1);
  Arg v = positive(f, group.shape), copy = tensor(t, group.shape);
  list.add("adamw", size, {scalars_arg(), group, group, v, group, copy}, adam);
  if (t == DType::bf16) {
    Arg half_v = positive(t, group.shape);
    std::vector<Arg> in = {scalars_arg(), copy, copy, half_v, group, absent(), copy};
    list.add("adamw", size + " kahan", in, Attrs(adam).set("rounding", "kahan"));
    in.resize(5);
    std::vector<Arg> halves = {scalars_arg(), {Arg::Fill::ids, DType::u16, group.shape, 1, 1 << 16}, group, v, group,
                               copy};
    list.add("adamw", size + " halves", halves, adam);
    list.cases.push_back(quantizing_update(size, parameters));
    list.add("adamw", size + " stochastic", in, Attrs(adam).set("rounding", "stochastic").set("rng_id", 0));
  }
  Attrs momentum = Attrs().set("momentum", 0.9).set("weight_decay", 0.1);
  list.add("sgd", size, {scalars_arg(), group, group, group, copy}, momentum);
  list.add("lion", size, {scalars_arg(), group, group, group, copy}, adam);
  Arg code = {Arg::Fill::ids, DType::u8, group.shape, 1, 256}, scale = positive(f, {(parameters + 255) / 256});
  std::vector<Arg> codes = {scalars_arg(), group, code, scale, code, scale, group, copy};
  list.add("adamw_8bit", size, codes, adam.set("block", 256));
  codes[2].limit = codes[4].limit = 127;  // NaN in e4m3
  list.add("adamw_8bit", size + " e4m3", codes, Attrs(adam).set("codes", "e4m3"));
  Shape square = {parameters / 4096, 4096};
  Arg matrix = tensor(f, square), row = positive(f, {square[0]}), col = positive(f, {square[1]});
  list.add("factored_moments", size, {scalars_arg(), matrix, row, col},
           Attrs().set("decay_rate", 0.8).set("eps", 1e-30));
  list.add("factored_update", size, {scalars_arg(), matrix, matrix, row, col, tensor(t, square)},
           Attrs().set("clip", 1.0).set("weight_decay", 0.1));
  list.add("axpby", size, {scalars_arg(), group, group}, Attrs().set("a", 0.9).set("b", 0.1));
  list.add("sqrt", size, {v}, {});
  list.add("unit_norm", size, {matrix}, Attrs().set("eps", 1e-7).set("dtype", crest::name(t)));
}

// gpt2-124M with 4 x 256 tokens.
std::vector<Case> cpu_cases() {
  std::vector<Case> all;
  for (DType t : {DType::f32, DType::bf16}) {
    List list{t};
    add_linears(list, {4, 256}, 3072, 768);
    add_layer(list, 4, 256);
    add_ends(list, 4, 256, int64_t(7) << 20);
    all.insert(all.end(), list.cases.begin(), list.cases.end());
  }
  return all;
}

// gpt2-124M with 64 x 1024 tokens, and attention over longer sequences.
std::vector<Case> gpu_cases() {
  std::vector<Case> all;
  for (DType t : {DType::bf16, DType::f32}) {
    List list{t};
    for (auto [n, k] : {std::pair{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}, {50304, 768}})
      if (t == DType::bf16 || n == 3072) add_linears(list, {64, 1024}, n, k);
    add_layer(list, 64, 1024);
    if (t == DType::bf16) {
      add_attention(list, 4, 4096, 16, 128);
      add_attention(list, 1, 16384, 16, 64);
      for (int64_t width : {768, 3072})
        for (Case& c : quantization_cases({64, 1024, width})) list.cases.push_back(std::move(c));
    }
    add_ends(list, 64, 1024, int64_t(119) << 20);
    all.insert(all.end(), list.cases.begin(), list.cases.end());
  }
  return all;
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + long(x.size() / 2), x.end());
  return x[x.size() / 2];
}

// Median seconds of one launch over at least 5 launches and 0.2 s.
double measure(const Kernel& kernel, const Single& s, const Memory& memory) {
  std::vector<double> seconds;
  double total = 0;
  BoundKernel bound(kernel, cpu(), s.program, s.instr(), memory);
  bound.launch();
  while (seconds.size() < 5 || total < 0.2) {
    Timer timer;
    bound.launch();
    seconds.push_back(timer.seconds());
    total += seconds.back();
  }
  return median(seconds);
}

// A case bound to memory of the GPU alone: the host could not hold it as doubles. Inputs repeat a
// random tile.
class OnGpu {
 public:
  OnGpu(const Case& c, const Device& device) : c_(c), single_(c), device_(device) {
    const Program& p = single_.program;
    std::vector<size_t> sizes(p.values.size());
    for (const Value& v : p.values) {  // dense, or views without gaps at the end
      size_t& size = sizes[size_t(v.layout.storage)];
      size = std::max(size, size_t(v.layout.offset + v.numel()) * size_of(v.dtype));
    }
    for (size_t size : sizes) buffers_.emplace_back(std::max<size_t>(size, 256));
    fill();
    for (ValueId v : single_.instr().in) in_.push_back(v == no_value ? nullptr : address(v));
    for (ValueId v : single_.instr().out) out_.push_back(address(v));
  }
  const Program& program() const { return single_.program; }
  const Instr& instr() const { return single_.instr(); }

  // Median seconds of a launch; the first ones, with cold clocks and caches, do not count.
  double measure(const Kernel& kernel) {
    KernelQuery query{program(), instr(), device_};
    size_t bytes = kernel.workspace ? kernel.workspace(query) : 0;
    gpu::Buffer workspace(std::max<size_t>(bytes, 256));
    auto prepared = kernel.prepare ? kernel.prepare(query) : nullptr;
    KernelCall call{program(),      instr(),         in_.data(), out_.data(),   bytes ? workspace.data() : nullptr,
                    prepared.get(), device_.threads, nullptr,    gpu::stream(), &device_};
    if (kernel.tune) kernel.tune(call);
    fill();
    auto run = [&](int n) { return gpu::measure([&] { kernel.launch(call); }, n); };
    double once = median(run(3));
    run(std::clamp(int(0.1 / once), 2, 200));
    return median(run(std::clamp(int(0.3 / once), 11, 500)));
  }

 private:
  void* address(ValueId v) const {
    const Value& value = program().at(v);
    return static_cast<char*>(buffers_[size_t(value.layout.storage)].data()) +
           value.layout.offset * int64_t(size_of(value.dtype));
  }
  void fill() {
    Case tiles = c_;
    for (Arg& a : tiles.in)
      if (a.fill != Arg::Fill::absent) a.shape = {std::min(a.shape.numel(), int64_t(1) << 20)};
    Values values = make_values(tiles);
    for (size_t i = 0; i < values.size(); ++i) {
      if (instr().in[i] == no_value) continue;
      DType t = c_.in[i].dtype;
      std::vector<char> bytes(values[i].size() * size_of(t));
      for (size_t e = 0; e < values[i].size(); ++e) store_element(bytes.data(), t, int64_t(e), values[i][e]);
      gpu::Buffer& to = buffers_[size_t(program().at(instr().in[i]).layout.storage)];
      to.upload(bytes.data(), bytes.size());
      to.repeat(bytes.size());
    }
  }

  const Case& c_;
  Single single_;
  const Device& device_;
  std::vector<gpu::Buffer> buffers_;  // by storage
  std::vector<void*> in_, out_;
};

// Arithmetic peak in FLOP/s of the data sheet (dense; H100 and H200 SXM), 0 when this GPU's is not
// known here.
double datasheet_peak(const Device& device, DType t) {
  bool hopper = device.name.find("H100") != std::string::npos || device.name.find("H200") != std::string::npos;
  return !hopper ? 0 : is_half(t) ? 990e12 : 67e12;
}

void print_header() {
  std::cout << fmt::format("{:22} {:36} {:34} {:>10} {:>10} {:>9} {:>9}\n", "op", "case", "kernel", "ms", "GFLOP/s",
                           "GB/s", "roofline");
}
void print_row(const Case& c, const Kernel& k, double seconds, const Cost& cost, double limit) {
  std::cout << fmt::format("{:22} {:36} {:34} {:10.4f} {:10.1f} {:9.1f} {:>9}\n", c.op, c.name, k.name, seconds * 1e3,
                           cost.flops / seconds * 1e-9, cost.bytes() / seconds * 1e-9,
                           limit > 0 ? fmt::format("{:.1f}%", 100 * limit / seconds) : "")
            << std::flush;
}

bool asked() { return std::getenv("CREST_PERF") != nullptr; }
constexpr const char* how = "set CREST_PERF=1 to measure, and CREST_PERF_OP=linear to measure one operation";
bool wanted(const Case& c) {
  const char* only = std::getenv("CREST_PERF_OP");
  return !only || c.op == only;
}

TEST(Perf, EveryKernelOfTheCpu) {
  if (!asked()) GTEST_SKIP() << how;
  print_header();
  for (const Case& c : cpu_cases()) {
    if (!wanted(c)) continue;
    Single s(c);
    Memory memory(s.program);
    s.fill(memory, make_values(c));
    Cost cost = s.instr().op->cost(s.program, s.instr());
    auto kernels = kernels_for(c.op, cpu());
    for (const Kernel* k : kernels) {
      // The reference would take minutes; it is timed only where it is all there is.
      if ((kernels.size() > 1 && k == kernels.back()) || !k->reject({s.program, s.instr(), cpu()}).empty()) continue;
      double seconds = measure(*k, s, memory);
      print_row(c, *k, seconds, cost, 0);
      EXPECT_TRUE(std::isfinite(seconds) && seconds > 0);
    }
  }
}

TEST(Perf, EveryKernelOfTheGpu) {
  if (!asked()) GTEST_SKIP() << how;
  if (!is_gpu(devices().back())) GTEST_SKIP() << why_no_gpu();
  const Device& device = devices().back();
  double rate = gpu::copy_rate();
  std::cout << fmt::format("{}: copies {:.2f} TB/s (measured), peak {:.0f} TFLOP/s bf16, {:.0f} f32 (data sheet)\n",
                           device.name, rate * 1e-12, datasheet_peak(device, DType::bf16) * 1e-12,
                           datasheet_peak(device, DType::f32) * 1e-12);
  std::cout << "roofline: the time that these rates allow over the time taken\n";
  print_header();
  for (const Case& c : gpu_cases()) {
    if (!wanted(c)) continue;
    OnGpu bound(c, device);
    Cost cost = bound.instr().op->cost(bound.program(), bound.instr());
    OpClass op_class = bound.instr().op->op_class;
    double limit = cost.bytes() / rate;
    if (op_class == OpClass::contraction || op_class == OpClass::attention) {
      double peak = datasheet_peak(device, c.in[0].dtype);
      limit = peak > 0 ? std::max(limit, cost.flops / peak) : 0;
    }
    for (const Kernel* k : kernels_for(c.op, device)) {
      if (!k->reject({bound.program(), bound.instr(), device}).empty()) continue;
      double seconds = bound.measure(*k);
      print_row(c, *k, seconds, cost, limit);
      EXPECT_TRUE(std::isfinite(seconds) && seconds > 0);
    }
  }
}

}  // namespace
}  // namespace crest::test
