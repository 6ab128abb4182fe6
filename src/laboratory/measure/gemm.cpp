#include "measure/gemm.h"

#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/cuda/library_product.h"
#include "backend/runtime.h"
#include "core/random.h"
#include "device/kernels.h"
#include "device/product_detail.h"
#include "ops/index.h"
#include "program/builder.h"

namespace crest {

namespace {

// One linear instruction with its own memory.
class Problem {
 public:
  Problem(const Device& device, const GemmProblem& g, bool tf32, LinearKernel which) : device_(device) {
    Builder builder(program_);
    ValueId x = builder.declare("x", g.type, Shape{g.m, g.k}, Role::input, Lifetime::micro_step);
    ValueId w = builder.declare("w", g.type, Shape{g.n, g.k}, Role::weight, Lifetime::persistent);
    ValueId y = builder.emit1("linear", {x, w});
    if (tf32) program_.code[0].attrs.set("tf32", int64_t(1));
    KernelQuery query{program_, program_.code[0], device_};
    kernel_ = chosen(query, which);
    if (!kernel_) return;
    runtime_ = make_runtime(device_, nullptr);
    bound_.program = &program_;
    BoundInstr b;
    b.kernel = kernel_;
    b.in = {take(program_.at(x).bytes()), take(program_.at(w).bytes())};
    b.out = {take(program_.at(y).bytes())};
    if (size_t bytes = kernel_->workspace ? kernel_->workspace(query) : 0) b.workspace = take(int64_t(bytes));
    if (kernel_->prepare) b.prepared = kernel_->prepare(query);
    bound_.code.push_back(std::move(b));
    if (kernel_->tune && !device_.deterministic) kernel_->tune(runtime_->call(bound_, 0));
    detail_ = product_detail(*kernel_, query, bound_.code[0].prepared.get());
    std::vector<char> weight(size_t(g.n * g.k) * size_of(g.type));
    transpose(g.b, weight.data(), g.k, g.n, size_of(g.type));
    runtime_->write(in(in::linear::x), g.a, program_.at(x).bytes());
    runtime_->write(in(in::linear::w), weight.data(), program_.at(w).bytes());
    runtime_->run(bound_, nullptr);
    runtime_->read(g.c, bound_.code[0].out[out::linear::y], program_.at(y).bytes());
  }
  ~Problem() {
    for (auto& [memory, bytes] : taken_) runtime_->release(memory, bytes);
  }

  bool supported() const {
    return kernel_ && std::string_view(kernel_->name).find("reference") == std::string_view::npos;
  }
  const ProductDetail& detail() const { return detail_; }
  void run() {
    runtime_->run(bound_, nullptr);
    runtime_->synchronize();
  }

 private:
  static const Kernel* chosen(const KernelQuery& query, LinearKernel which) {
    for (auto& kernel : kernels_of(query.device.kind)) {
      std::string_view name = kernel.name;
      bool wanted = which == LinearKernel::trained || name.ends_with(".cublaslt") || name.ends_with(".onednn");
      if (std::string_view(kernel.op) == "linear" && wanted && (!kernel.reject || kernel.reject(query).empty()))
        return &kernel;
    }
    return nullptr;
  }
  static void transpose(const void* from, void* to, int64_t rows, int64_t columns, size_t element) {
    auto* f = static_cast<const char*>(from);
    auto* t = static_cast<char*>(to);
#pragma omp parallel for
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(t + size_t(c * rows + r) * element, f + size_t(r * columns + c) * element, element);
  }
  void* take(int64_t bytes) {
    taken_.emplace_back(runtime_->allocate(bytes), bytes);
    return taken_.back().first;
  }
  void* in(size_t i) const { return bound_.code[0].in[i]; }

  Device device_;
  Program program_;
  const Kernel* kernel_ = nullptr;
  std::unique_ptr<Runtime> runtime_;
  BoundProgram bound_;
  std::vector<std::pair<void*, int64_t>> taken_;
  ProductDetail detail_;
};

}  // namespace

GemmFactory linear_kernel_factory(const Device& device, bool tf32, std::shared_ptr<ProductDetail> detail,
                                  LinearKernel which) {
  GemmFactory factory = [device, tf32, detail, which](const GemmProblem& g) -> std::function<void()> {
    auto p = std::make_shared<Problem>(device, g, tf32, which);
    if (!p->supported()) return {};
    if (detail) *detail = p->detail();
    return [p] { p->run(); };
  };
  if (tf32) factory.operand_rounding = 0x1p-11;
  return factory;
}

namespace {

constexpr StoppingRule quick = {
    .warmup = 3, .min_samples = 6, .max_samples = 20, .max_seconds = 0.4, .target_relative_ci = 0.02};

// 8192 cubed is the usual benchmark. Units without tensor cores are slower.
std::vector<GemmSize> quick_sizes(const Device& device, bool tensor_cores) {
  if (device.kind == "cuda" && !device.emulated)
    return {tensor_cores ? GemmSize{8192, 8192, 8192} : GemmSize{4096, 4096, 4096}};
  return {{1024, 3072, 768}, {1024, 768, 3072}};
}

bool only_in_library(const std::string& precision) {
  return precision == "fp64" || precision == "fp8" || precision == "int8";
}

void measure_library(PrecisionRate& result, const Device& device, const std::vector<GemmSize>& sizes,
                     const StoppingRule& rule) {
  for (auto& s : sizes) {
    cuda::LibraryProduct product = cuda::library_product(device, result.precision, s.m, s.n, s.k);
    result.how = product.how, result.problem = product.problem, result.detail = product.detail;
    if (!product.run) return;
    Samples seconds = measure([&] { return time_once(product.run); }, rule);
    double flops = 2 * double(s.m) * double(s.n) * double(s.k) / seconds.median();
    if (flops > result.rate.flops_per_second)
      result.rate.m = s.m, result.rate.n = s.n, result.rate.k = s.k, result.rate.seconds = seconds,
      result.rate.flops_per_second = flops;
  }
}

}  // namespace

PrecisionRate measure_precision(const Device& device, const std::string& precision, const std::vector<GemmSize>& sizes,
                                const StoppingRule& rule, LinearKernel which) {
  PrecisionRate result{precision, "linear kernel", "", {}, {}};
  if (only_in_library(precision) || (precision == "tf32" && device.kind == "cpu")) {
    if (device.kind == "cpu")
      result.problem = precision == "tf32" ? "the CPU has no tf32" : "no CPU kernel for " + precision + " matmuls";
    else
      measure_library(result, device, sizes, rule);
    return result;
  }
  DType type = precision == "bf16" ? DType::bf16 : precision == "fp16" ? DType::f16 : DType::f32;
  auto detail = std::make_shared<ProductDetail>();
  result.rate = measure_gemm_rate(type, linear_kernel_factory(device, precision == "tf32", detail, which), sizes, rule);
  result.detail = *detail;
  if (result.rate.seconds.empty()) result.problem = "no fast kernel for " + precision + " matmuls on this device";
  return result;
}

PrecisionRate quick_precision_rate(const Device& device, const std::string& precision) {
  bool tensor_cores = precision != "fp32" && precision != "fp64";
  return measure_precision(device, precision, quick_sizes(device, tensor_cores), quick);
}

GemmRate quick_gemm_rate(const Device& device, DType type, bool tf32) {
  return measure_gemm_rate(type, linear_kernel_factory(device, tf32), quick_sizes(device, type != DType::f32 || tf32),
                           quick);
}

Bandwidth measure_device_copy(const Device& device) {
  Bandwidth b;
  b.kind = "copy", b.level = "device memory";
  b.buffer_bytes = int64_t(4) << 30;
  Program program;
  Builder builder(program);
  ValueId x = builder.declare("x", DType::f32, Shape{b.buffer_bytes / 4}, Role::input, Lifetime::micro_step);
  builder.emit1("scale", {x}, Attrs().set("value", 0.5));
  auto runtime = make_runtime(device, nullptr);
  BoundProgram bound;
  bound.program = &program;
  BoundInstr instr;
  for (auto& kernel : kernels_of(device.kind))
    if (std::string_view(kernel.op) == "scale") instr.kernel = &kernel;
  void *from = runtime->allocate(b.buffer_bytes), *to = runtime->allocate(b.buffer_bytes);
  std::vector<float> noise(1 << 22);
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = float(normal(7, 1, i));
  int64_t piece = int64_t(noise.size()) * 4;
  for (int64_t done = 0; done < b.buffer_bytes; done += piece)
    runtime->write(static_cast<char*>(from) + done, noise.data(), piece);
  instr.in = {from}, instr.out = {to};
  bound.code.push_back(std::move(instr));
  b.seconds = measure(
      [&] {
        return time_once([&] {
          runtime->run(bound, nullptr);
          runtime->synchronize();
        });
      },
      {.warmup = 3, .min_samples = 7, .max_samples = 50, .max_seconds = 1, .target_relative_ci = 0.02});
  b.bytes_per_second = 2 * double(b.buffer_bytes) / b.seconds.median();
  runtime->release(from, b.buffer_bytes);
  runtime->release(to, b.buffer_bytes);
  return b;
}

HostLink measure_host_link(const Device& device) {
  constexpr int64_t bytes = int64_t(256) << 20;
  auto runtime = make_runtime(device, nullptr);
  void *on_device = runtime->allocate(bytes), *on_host = runtime->allocate_host(bytes);
  auto rate = [&](const char* op, bool in) {
    Program program;
    Builder builder(program);
    builder.origin = Origin("link");
    ValueId host = builder.declare("host", DType::u8, Shape{bytes}, Role::state, Lifetime::persistent);
    program.at(host).space = MemorySpace::host;
    ValueId memory = builder.declare("device", DType::u8, Shape{bytes}, Role::state, Lifetime::micro_step);
    builder.emit1(op, in ? std::vector{host, memory} : std::vector{memory, host});
    BoundInstr instr;
    for (auto& kernel : kernels_of(device.kind))
      if (std::string_view(kernel.op) == op) instr.kernel = &kernel;
    instr.in = {on_host, on_device}, instr.out = {on_device};
    if (!in) instr.in = {on_device, on_host}, instr.out = {on_host};
    BoundProgram bound;
    bound.program = &program;
    bound.code.push_back(std::move(instr));
    Samples seconds = measure(
        [&] {
          return time_once([&] {
            runtime->run(bound, nullptr);
            runtime->synchronize();
          });
        },
        {.warmup = 3, .min_samples = 7, .max_samples = 50, .max_seconds = 1, .target_relative_ci = 0.02});
    return double(bytes) / seconds.median();
  };
  HostLink link = {rate("copy_in", true), rate("copy_out", false)};
  runtime->release(on_device, bytes);
  runtime->release_host(on_host, bytes);
  return link;
}

}  // namespace crest
