#include "backend/cuda/fused_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cuda/device/activation.h"
#include "backend/cuda/fused_source_text.h"
#include "core/error.h"

namespace crest::cuda {

namespace {

const char* type_name(DType t) {
  switch (t) {
    case DType::f32: return "float";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    default: fail_internal("a fused CUDA kernel was given a dtype that it rejects");
  }
}

// Exact, whatever the number.
std::string literal(float x) {
  if (std::isfinite(x)) return fmt::format("{:a}f", x);
  return fmt::format("__uint_as_float({:#x}u)", std::bit_cast<uint32_t>(x));
}

// Vectors in flight per thread: 64 bytes of loads keep the memory busy at a quarter of the possible
// threads.
int unroll(const FusedBody& body, int width) {
  size_t bytes = 0;
  for (auto& l : body.loads) bytes += size_of(l.dtype) * size_t(width);
  return int(std::clamp<size_t>(64 / std::max<size_t>(bytes, 1), 1, 4));
}

class Writer {
 public:
  explicit Writer(const FusedBody& body) : b_(body) {}

  std::string run() {
    out_ = fmt::format("{}\n{}", memory_access, activation_text);
    add("\n\nconstexpr int block_threads = {};\n", fused_threads);
    add("constexpr int resident_blocks = {};\n", resident_blocks());
    add("constexpr int sum_count = {};\n\n", b_.sums.size());
    element_function();
    pointers();
    inputs();
    out_ += b_.sums.empty() ? flat_frame : column_frame;
    int width = vector_width(b_);
    if (width > 1) kernel(fused_vector_kernel, width);
    kernel(fused_scalar_kernel, 1);
    return std::move(out_);
  }

 private:
  template <class... A>
  void add(const char* format, A&&... a) {
    out_ += fmt::format(fmt::runtime(format), a...);
  }
  std::string reg(int r) const {
    int loads = int(b_.loads.size());
    return r < loads ? fmt::format("x{}", r) : fmt::format("r{}", r - loads);
  }

  // Given 64 registers, the compiler issues all loads at once; by itself it saves registers and
  // waits for one after the other. Bodies with many streams get 128.
  int resident_blocks() const { return b_.loads.size() + b_.sums.size() + b_.stores.size() <= 5 ? 4 : 2; }

  // y0 .. = stores, s0 .. += sums of one element.
  void element_function() {
    std::vector<std::string> parameters;
    for (size_t i = 0; i < b_.loads.size(); ++i) parameters.push_back(fmt::format("float x{}", i));
    for (size_t i = 0; i < b_.stores.size(); ++i) parameters.push_back(fmt::format("float& y{}", i));
    for (size_t i = 0; i < b_.sums.size(); ++i) parameters.push_back(fmt::format("float& s{}", i));
    add("__device__ __forceinline__ void element({}) {{\n", fmt::join(parameters, ", "));
    for (size_t i = 0; i < b_.steps.size(); ++i) add("  const float r{} = {};\n", i, expression(b_.steps[i]));
    for (size_t i = 0; i < b_.stores.size(); ++i) add("  y{} = {};\n", i, reg(b_.stores[i].from));
    for (size_t i = 0; i < b_.sums.size(); ++i) add("  s{} += {};\n", i, reg(b_.sums[i].from));
    add("}}\n\n");
  }
  std::string expression(const FusedBody::Step& s) const {
    return fmt::format("pointwise_{}({}, {}, {})", name(s.op), reg(s.a), reg(s.b), literal(s.value));
  }

  void pointers() {
    add("struct Pointers {{\n");
    for (size_t i = 0; i < b_.loads.size(); ++i) add("  const {}* x{};\n", type_name(b_.loads[i].dtype), i);
    for (size_t i = 0; i < b_.stores.size(); ++i) add("  {}* y{};\n", type_name(b_.stores[i].dtype), i);
    add("}};\n\n");
  }

  void inputs() {
    add("template <int N> struct Inputs {{\n");
    for (size_t i = 0; i < b_.loads.size(); ++i) add("  float x{}[N];\n", i);
    add("  __device__ __forceinline__ void load_from(const Pointers& p, long long e) {{\n");
    for (size_t i = 0; i < b_.loads.size(); ++i) add("    load<N>(x{0}, p.x{0} + e);\n", i);
    add("  }}\n");
    add("  __device__ __forceinline__ void finish(const Pointers& p, long long e, {}) const {{\n",
        b_.sums.empty() ? "float (&)[1][N]" : "float (&sums)[sum_count][N]");
    for (size_t i = 0; i < b_.stores.size(); ++i) add("    float y{}[N];\n", i);
    std::vector<std::string> arguments;
    for (size_t i = 0; i < b_.loads.size(); ++i) arguments.push_back(fmt::format("x{}[k]", i));
    for (size_t i = 0; i < b_.stores.size(); ++i) arguments.push_back(fmt::format("y{}[k]", i));
    for (size_t i = 0; i < b_.sums.size(); ++i) arguments.push_back(fmt::format("sums[{}][k]", i));
    add("#pragma unroll\n    for (int k = 0; k < N; ++k) element({});\n", fmt::join(arguments, ", "));
    for (size_t i = 0; i < b_.stores.size(); ++i) add("    store<N>(p.y{0} + e, y{0});\n", i);
    add("  }}\n}};\n");
  }

  void kernel(const char* kernel_name, int width) {
    add(b_.sums.empty() ? flat_kernel : column_kernel, kernel_name, width, unroll(b_, width));
  }

  const FusedBody& b_;
  std::string out_;
};

}  // namespace

FusedLaunch fused_launch(const KernelCall& call, const FusedBody& body, const Device& device) {
  FusedLaunch l;
  int widest = vector_width(body), width = widest;
  auto point = [&](void* address, DType t) {
    l.pointers.push_back(address);
    if (reinterpret_cast<uintptr_t>(address) % (size_of(t) * size_t(widest))) width = 1;
  };
  for (auto& x : body.loads) point(call.in[x.input], x.dtype);
  for (auto& y : body.stores) point(call.out[y.output], y.dtype);
  l.vector = width > 1;
  if (body.sums.empty()) {
    int64_t per_block = int64_t(fused_threads) * width * unroll(body, width);
    l.grid[0] = unsigned(std::max<int64_t>((body.numel + per_block - 1) / per_block, 1));
    l.block[0] = fused_threads;
    l.sizes[0] = body.numel;
  } else {
    ColumnGrid g = column_grid(body, width, widest, device);
    l.grid[0] = unsigned(g.tiles), l.grid[1] = unsigned(g.slabs);
    l.block[0] = unsigned(g.tx), l.block[1] = unsigned(g.ty);
    l.partials = static_cast<float*>(call.workspace);
    l.sizes[0] = body.rows(), l.sizes[1] = body.columns, l.sizes[2] = g.slab;
  }
  return l;
}

std::vector<void*> FusedLaunch::arguments() {
  if (!partials) return {pointers.data(), &sizes[0]};
  return {pointers.data(), &partials, &sizes[0], &sizes[1], &sizes[2]};
}

FusedSource fused_source(const FusedBody& body) { return {device_primitives, Writer(body).run()}; }

}  // namespace crest::cuda
