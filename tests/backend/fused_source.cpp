// Fused CUDA kernels: the generated source as text, compiled by NVRTC (which needs no GPU), and
// compiled for the host and run on the emulator; the interpreter on the emulator. Expected numbers
// come from the CPU reference in double.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <cmath>

#include "backend/cuda/device/activation.h"
#include "backend/cuda/fused_source.h"
#include "backend/cuda/loader.h"
#include "backend/cuda/nvrtc.h"
#include "core/error.h"
#include "core/temporary_folder.h"
#include "device/kernels.h"
#include "fast_call.h"
#include "fused_host.h"
#include "program/builder.h"

namespace crest::cuda {
namespace {

namespace fs = std::filesystem;
using testing_call::random_values;
using Make = std::function<std::vector<ValueId>(Builder&, const std::vector<ValueId>&)>;

struct Input {
  DType dtype;
  bool column = false;  // of shape [columns]: the sum so far
};

struct Case {
  const char* name;
  Shape shape;
  std::vector<Input> in;
  Make make;
};

Attrs value(double x) { return Attrs().set("value", x); }
Attrs as(DType t) { return Attrs().set("dtype", std::string(name(t))); }

Instr fused_instr(const Case& c) {
  auto body = std::make_shared<Program>();
  Builder b(*body);
  b.origin = Origin("test");
  for (const Input& i : c.in)
    body->inputs.push_back(b.declare(std::string(c.name) + std::to_string(body->inputs.size()), i.dtype,
                                     i.column ? Shape{c.shape.back()} : c.shape, Role::activation,
                                     Lifetime::micro_step));
  body->outputs = c.make(b, body->inputs);
  Instr instr;
  instr.op = &op("fused");
  instr.body = body;
  instr.origin = b.origin;
  return instr;
}

FusedBody body_of(const Case& c) {
  std::string why;
  FusedBody body = flatten_body(fused_instr(c), why);
  EXPECT_EQ(why, "");
  return body;
}

std::vector<ValueId> gelu_grad_sum(Builder& b, const std::vector<ValueId>& in) {
  ValueId dh = b.emit1("gelu_grad", {in[0], in[1]});
  return {dh, b.emit1("bias_grad", {dh, in.size() > 2 ? in[2] : no_value})};
}

std::vector<ValueId> gelu_by_parts(Builder& b, const std::vector<ValueId>& in) {
  ValueId x = in[0], cube = b.emit1("mul", {b.emit1("mul", {x, x}), x});
  ValueId inner = b.emit1("add", {x, b.emit1("scale", {cube}, value(0.044715))});
  ValueId t = b.emit1("tanh", {b.emit1("scale", {inner}, value(0.7978845608))});
  return {b.emit1("scale", {b.emit1("mul", {x, b.emit1("add_scalar", {t}, value(1.0))})}, value(0.5)), t};
}

std::vector<ValueId> swiglu(Builder& b, const std::vector<ValueId>& in) {
  return {b.emit1("mul", {b.emit1("silu", {in[0]}), in[1]})};
}

// Casts, an input as output, an output of each
// dtype, all operations left out by the others.
std::vector<ValueId> mixed(Builder& b, const std::vector<ValueId>& in) {
  ValueId up = b.emit1("cast", {in[0]}, as(DType::f32));
  ValueId sum = b.emit1("add", {b.emit1("gelu", {up}), in[1]});
  ValueId g = b.emit1("silu_grad", {sum, b.emit1("tanh_grad", {up, in[1]})});
  return {b.emit1("cast", {g}, as(DType::f16)), sum, b.emit1("cast", {in[0]}, as(DType::bf16)), g};
}

std::vector<ValueId> two_sums(Builder& b, const std::vector<ValueId>& in) {
  ValueId product = b.emit1("mul", {in[0], b.emit1("cast", {in[1]}, as(DType::f16))});
  return {b.emit1("bias_grad", {product, in[2]}, as(DType::bf16)), b.emit1("bias_grad", {in[0]})};
}

std::vector<ValueId> long_chain(Builder& b, const std::vector<ValueId>& in) {
  ValueId x = in[0];
  for (size_t i = 1; i < in.size(); ++i) x = b.emit1(i % 2 ? "add" : "mul", {x, in[i]});
  return {x};
}

const std::vector<Case>& cases() {
  constexpr DType f32 = DType::f32, bf16 = DType::bf16, f16 = DType::f16;
  static const std::vector<Case> list = {
      {"parts", {130, 67}, {{bf16}}, gelu_by_parts},
      {"swiglu", {3, 40, 96}, {{f16}, {f16}}, swiglu},
      {"one", {1}, {{f32}, {f32}}, swiglu},
      {"gelu_grad_sum", {100, 520}, {{bf16}, {bf16}}, gelu_grad_sum},
      {"gelu_grad_sum_f32", {3, 37, 24}, {{f32}, {f32}}, gelu_grad_sum},
      {"gelu_grad_sum_acc", {70, 36}, {{bf16}, {bf16}, {f32, true}}, gelu_grad_sum},
      {"odd_columns", {77, 65}, {{f16}, {f16}, {f32, true}}, gelu_grad_sum},
      {"one_row", {1, 16}, {{bf16}, {bf16}}, gelu_grad_sum},
      {"one_column", {300, 1}, {{f32}, {f32}}, gelu_grad_sum},
      {"mixed", {9, 1030}, {{bf16}, {f32}}, mixed},
      {"two_sums", {700, 8}, {{f16}, {bf16}, {bf16, true}}, two_sums},
      {"long_chain", {40, 50}, std::vector<Input>(25, {bf16}), long_chain},
  };
  return list;
}

// Memory of an instruction, `shift` bytes after an aligned address. In-place outputs share the
// memory of their inputs.
class Bound {
 public:
  Bound(const Case& c, bool in_double, size_t shift = 0) {
    Builder b(program);
    b.origin = Origin("test");
    Instr instr = fused_instr(c);
    if (in_double) {
      auto body = std::make_shared<Program>(*instr.body);
      for (Value& v : body->values) v.dtype = DType::f64;
      for (Instr& i : body->code)
        if (i.attrs.has("dtype")) i.attrs.set("dtype", "f64");
      instr.body = body;
    }
    for (ValueId v : instr.body->inputs) {
      const Value& inner = instr.body->at(v);
      instr.in.push_back(b.declare(inner.name, inner.dtype, inner.shape, Role::input, Lifetime::micro_step));
    }
    b.append(std::move(instr));
    for (const Value& v : program.values) memory_.emplace_back(size_t(v.bytes()) + 512, 0xff);
    for (ValueId v : code().in) in.push_back(at(v, shift));
    for (ValueId v : code().out) out.push_back(at(v, shift));
    for (size_t i = 0; i < c.in.size(); ++i) {
      int64_t n = program.at(code().in[i]).numel();
      auto x = random_values(c.in[i].dtype, n, unsigned(i) + 1, 2);
      for (int64_t e = 0; e < n; ++e) store_element(in[i], program.at(code().in[i]).dtype, e, x[size_t(e)]);
    }
  }
  const Instr& code() const { return program.code[0]; }
  KernelCall call(void* workspace, void* prepared, const Device& device) {
    return {program, code(), in.data(), out.data(), workspace, prepared, 1, nullptr, nullptr, &device};
  }
  std::vector<double> read(size_t o) const {
    const Value& v = program.at(code().out[o]);
    std::vector<double> x(size_t(v.numel()));
    for (size_t e = 0; e < x.size(); ++e) x[e] = load_element(out[o], v.dtype, int64_t(e));
    return x;
  }
  Program program;
  std::vector<void*> in, out;

 private:
  void* at(ValueId v, size_t shift) {
    auto p = reinterpret_cast<uintptr_t>(memory_[size_t(program.at(v).layout.storage)].data());
    return reinterpret_cast<void*>((p + 255) / 256 * 256 + shift);
  }
  std::vector<std::vector<uint8_t>> memory_;
};

std::vector<std::vector<double>> expected(const Case& c) {
  Bound bound(c, true);
  for (const Kernel& k : kernels_of("cpu"))
    if (std::string(k.name) == "cpu.fused.reference") k.launch(bound.call(nullptr, nullptr, Device()));
  std::vector<std::vector<double>> all;
  for (size_t o = 0; o < bound.out.size(); ++o) all.push_back(bound.read(o));
  return all;
}

// One rounding of the output; f32: sums of hundreds of terms and exponentials of two units in the
// last place.
double tolerance(DType t) { return t == DType::bf16 ? 4e-3 : t == DType::f16 ? 5e-4 : 2e-6; }

[[maybe_unused]] void expect_outputs(const Case& c, const Bound& bound) {
  auto want = expected(c);
  for (size_t o = 0; o < want.size(); ++o) {
    SCOPED_TRACE("output " + std::to_string(o));
    auto got = bound.read(o);
    double square = 0, worst = 0;
    for (size_t e = 0; e < got.size(); ++e) {
      ASSERT_TRUE(std::isfinite(got[e])) << "element " << e;
      square += want[o][e] * want[o][e];
      worst = std::max(worst, std::abs(got[e] - want[o][e]) -
                                  tolerance(bound.program.at(bound.code().out[o]).dtype) * std::abs(want[o][e]));
    }
    EXPECT_LE(worst, 2e-6 * std::sqrt(square / double(got.size())));
  }
}

Device small_gpu() {
  Device d;
  d.kind = "cuda", d.sm = 90, d.multiprocessors = 2, d.nvrtc = true;
  return d;
}

const Kernel& kernel_named(const std::string& wanted) {
  for (const Kernel& k : kernels_of("cuda"))
    if (wanted == k.name) return k;
  fail_internal("no kernel " + wanted);
}

TEST(FusedSource, DependsOnTheBodyNotOnNamesOrCounts) {
  Case a{"a", {64, 96}, {{DType::bf16}, {DType::bf16}}, gelu_grad_sum}, b = a;
  b.name = "another", b.shape = {3, 5, 48};
  EXPECT_EQ(fused_source(body_of(a)).text(), fused_source(body_of(b)).text());
  b.shape = {3, 5, 44};  // rows start at multiples of 4 elements
  EXPECT_NE(fused_source(body_of(a)).text(), fused_source(body_of(b)).text());
  b = a, b.in[0].dtype = b.in[1].dtype = DType::f16;
  EXPECT_NE(fused_source(body_of(a)).text(), fused_source(body_of(b)).text());
}

TEST(FusedSource, WidthFollowsDtypesAndColumns) {
  auto width = [](DType t, int64_t columns, const Make& make) {
    return vector_width(body_of({"x", {4, columns}, {{t}, {t}}, make}));
  };
  EXPECT_EQ(width(DType::bf16, 3072, gelu_grad_sum), 8);
  EXPECT_EQ(width(DType::f32, 3072, gelu_grad_sum), 4);
  EXPECT_EQ(width(DType::bf16, 50, gelu_grad_sum), 2);
  EXPECT_EQ(width(DType::bf16, 65, gelu_grad_sum), 1);
  EXPECT_EQ(width(DType::bf16, 65, swiglu), 8);
}

TEST(FusedSource, GridFillsTheGpuAndCoversTheRows) {
  Device h200;
  h200.multiprocessors = 132;
  for (int64_t rows : {1, 7, 1024, 65536, 1 << 20})
    for (int64_t columns : {1, 65, 768, 3072, 6400}) {
      FusedBody body = body_of({"x", {rows, columns}, {{DType::bf16}, {DType::bf16}}, gelu_grad_sum});
      int widest = vector_width(body);
      for (int width : {widest, 1}) {
        ColumnGrid g = column_grid(body, width, widest, h200);
        EXPECT_EQ(g.tx * g.ty, fused_threads);
        EXPECT_GE(g.tiles * g.tx * width, columns);
        EXPECT_GE(g.slabs * g.slab, rows);
        EXPECT_LT((g.slabs - 1) * g.slab, rows);
        EXPECT_EQ(size_t(g.slabs * columns) * 4, partial_bytes(body, widest, h200));
      }
      if (rows >= 1024 && columns >= 768) {
        ColumnGrid g = column_grid(body, widest, widest, h200);
        EXPECT_GE(g.tiles * g.slabs, 132) << rows << " x " << columns;
      }
    }
}

TEST(FusedSource, GoldenText) {
  std::string text = fused_source(body_of({"x", {64, 96}, {{DType::bf16}, {DType::bf16}}, gelu_grad_sum})).kernels;
  size_t begin = text.find("constexpr int block_threads"), end = text.find("\ntemplate <int N, int U>");
  EXPECT_EQ(text.substr(begin, end - begin), R"(constexpr int block_threads = 256;
constexpr int resident_blocks = 4;
constexpr int sum_count = 1;

__device__ __forceinline__ void element(float x0, float x1, float& y0, float& s0) {
  const float r0 = pointwise_gelu_grad(x0, x1, 0x0p+0f);
  y0 = r0;
  s0 += r0;
}

struct Pointers {
  const bf16* x0;
  const bf16* x1;
  bf16* y0;
};

template <int N> struct Inputs {
  float x0[N];
  float x1[N];
  __device__ __forceinline__ void load_from(const Pointers& p, long long e) {
    load<N>(x0, p.x0 + e);
    load<N>(x1, p.x1 + e);
  }
  __device__ __forceinline__ void finish(const Pointers& p, long long e, float (&sums)[sum_count][N]) const {
    float y0[N];
#pragma unroll
    for (int k = 0; k < N; ++k) element(x0[k], x1[k], y0[k], sums[0][k]);
    store<N>(p.y0 + e, y0);
  }
};
)");
  EXPECT_NE(text.find("rows_of_columns<8, 2>"), std::string::npos);
  EXPECT_NE(text.find("rows_of_columns<1, 4>"), std::string::npos);
}

TEST(FusedSource, KernelsSayWhatTheyDoNotTake) {
  Case c{"x", {4, 8}, {{DType::bf16}, {DType::bf16}}, gelu_grad_sum};
  Bound bound(c, false);
  Device d = small_gpu();
  const Kernel &nvrtc = kernel_named("cuda.fused.nvrtc"), &interpreter = kernel_named("cuda.fused.interpreter");
  EXPECT_EQ(nvrtc.reject({bound.program, bound.code(), d}), "");
  EXPECT_EQ(interpreter.reject({bound.program, bound.code(), d}), "");
  d.nvrtc = false;
  EXPECT_NE(nvrtc.reject({bound.program, bound.code(), d}).find("NVRTC"), std::string::npos);
  Bound wide({"x", {4, 8}, std::vector<Input>(40, {DType::bf16}), long_chain}, false);
  EXPECT_NE(interpreter.reject({wide.program, wide.code(), d}).find("too long"), std::string::npos);
}

bool compiler_is_there() {
  if (library("nvrtc", 13).handle) return true;
  std::cout << library("nvrtc", 13).problem << "\n";
  return false;
}

TEST(FusedSource, CompilesWithNvrtc) {
  if (!compiler_is_there()) GTEST_SKIP();
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    FusedBody body = body_of(c);
    for (int sm : {80, 90}) {
      std::string cubin = compile(fused_source(body).text(), sm);
      EXPECT_EQ(cubin.substr(0, 4), "\177ELF");
      EXPECT_NE(cubin.find(fused_scalar_kernel), std::string::npos);
      EXPECT_EQ(cubin.find(fused_vector_kernel) != std::string::npos, vector_width(body) > 1);
    }
  }
  std::string ptx = compile(fused_source(body_of(cases()[0])).text(), 999);  // newer than the compiler
  EXPECT_NE(ptx.find(".target sm_"), std::string::npos);
  EXPECT_THROW(compile("this is not C++", 90), Error);
}

TEST(FusedSource, CompiledCodeIsKeptOnDisk) {
  if (!compiler_is_there()) GTEST_SKIP();
  TemporaryFolder temporary;
  fs::path folder = temporary.path();
  setenv("CREST_CACHE", folder.c_str(), 1);
  std::string source = fused_source(body_of(cases()[1])).text(), first = compile_cached(source, 90);
  auto files = [&] {
    std::vector<fs::path> found;
    for (auto& e : fs::directory_iterator(folder / "fused")) found.push_back(e.path());
    return found;
  };
  ASSERT_EQ(files().size(), 1u);
  fs::path file = files()[0];
  EXPECT_EQ(file.extension(), ".cubin");
  auto size = fs::file_size(file);
  auto written = fs::last_write_time(file);
  EXPECT_EQ(compile_cached(source, 90), first);
  EXPECT_EQ(fs::last_write_time(file), written) << "compiled again";
  for (int damage = 0; damage < 3; ++damage) {
    SCOPED_TRACE(damage);
    if (damage == 0) fs::resize_file(file, size / 2);
    if (damage == 1) std::ofstream(file).close();
    if (damage == 2) std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(long(size) / 2).put('~');
    EXPECT_EQ(compile_cached(source, 90), first);
    EXPECT_EQ(fs::file_size(file), size) << "the damaged file is still there";
  }
  compile_cached(source, 80);
  EXPECT_EQ(files().size(), 2u);
  setenv("CREST_CACHE", "/proc/no-such-folder", 1);
  EXPECT_EQ(compile_cached(source, 90), first);
  unsetenv("CREST_CACHE");
}

#if !CREST_HAVE_CUDA

TEST(Activations, AreAccurateAndSurviveExtremes) {
  auto slope = [](auto f, double x) { return (f(x + 1e-4) - f(x - 1e-4)) / 2e-4; };
  auto gelu_exact = [](double x) { return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); };
  auto gelu_erf_exact = [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); };
  auto silu_exact = [](double x) { return x / (1 + std::exp(-x)); };
  for (double x = -12; x < 12; x += 0.0625) {
    EXPECT_NEAR(gelu(float(x)), gelu_exact(x), 2e-7 * std::abs(x) + 1e-7 * std::abs(gelu_exact(x))) << x;
    EXPECT_NEAR(silu(float(x)), silu_exact(x), 1e-6 * std::abs(silu_exact(x))) << x;
    // A sigmoid near 1 has no room for its distance from 1, and the slope multiplies it by up to
    // 40.
    EXPECT_NEAR(gelu_grad(1.f, float(x)), slope(gelu_exact, x), 2e-6) << x;
    EXPECT_NEAR(silu_grad(1.f, float(x)), slope(silu_exact, x), 2e-6) << x;
    EXPECT_NEAR(gelu_erf(float(x)), gelu_erf_exact(x), 2e-6 * std::abs(gelu_erf_exact(x)) + 1e-9) << x;
    EXPECT_NEAR(gelu_erf_grad(1.f, float(x)), slope(gelu_erf_exact, x), 2e-6) << x;
  }
  for (float big : {40.f, 1e6f, 1e13f, 1e25f}) {
    EXPECT_EQ(gelu(big), big);
    EXPECT_EQ(gelu(-big), 0);
    EXPECT_EQ(gelu_grad(2.f, big), 2);
    EXPECT_EQ(gelu_grad(2.f, -big), 0);
    EXPECT_EQ(gelu_erf(big), big);
    EXPECT_EQ(gelu_erf(-big), 0);
    EXPECT_EQ(gelu_erf_grad(2.f, big), 2);
    EXPECT_EQ(gelu_erf_grad(2.f, -big), 0);
    EXPECT_FLOAT_EQ(silu(big), big);
    EXPECT_NEAR(silu(-big), 0, 1e-12);
    EXPECT_FLOAT_EQ(silu_grad(2.f, big), 2);
    EXPECT_NEAR(silu_grad(2.f, -big), 0, 1e-12);
  }
  for (float y : {gelu(NAN), gelu_erf(NAN), silu(NAN), gelu_grad(1, NAN), gelu_erf_grad(1, NAN), silu_grad(1, NAN),
                  gelu_grad(NAN, 1), gelu_erf_grad(NAN, 1), silu_grad(NAN, 1)})
    EXPECT_TRUE(std::isnan(y));
}

TEST(FusedInterpreter, AgreesWithTheReference) {
  const Kernel& k = kernel_named("cuda.fused.interpreter");
  Device d = small_gpu();
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Bound bound(c, false);
    KernelQuery q{bound.program, bound.code(), d};
    ASSERT_EQ(k.reject(q), "");
    std::vector<float> workspace(k.workspace(q) / 4);
    auto prepared = k.prepare(q);
    k.launch(bound.call(workspace.data(), prepared.get(), d));
    expect_outputs(c, bound);
  }
}

// The kernels of all cases as host code (fused_host.h), compiled at once.
TEST(FusedSource, AgreesWithTheReferenceOnTheHost) {
  TemporaryFolder temporary;
  fs::path folder = temporary.path();
  std::vector<std::string> sources;
  for (const Case& c : cases()) sources.push_back(fused_source(body_of(c)).kernels);
  std::ofstream(folder / "kernels.cpp") << host_source(sources);
  std::string built = (folder / "kernels.so").string(), log = (folder / "log").string();
  if (std::system("g++ --version > /dev/null 2>&1")) GTEST_SKIP() << "no g++";
  ASSERT_EQ(std::system(("g++ -std=c++17 -O1 -w -shared -fPIC -o " + built + " " + (folder / "kernels.cpp").string() +
                         " > " + log + " 2>&1")
                            .c_str()),
            0)
      << std::ifstream(log).rdbuf();
  void* kernels = dlopen(built.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(kernels) << dlerror();
  *static_cast<HostDevice*>(dlsym(kernels, "device")) = host_device();

  Device d = small_gpu();
  for (size_t i = 0; i < cases().size(); ++i)
    for (size_t shift : {0, 4}) {  // vectors and, where 4 bytes off is too little, single elements
      SCOPED_TRACE(std::string(cases()[i].name) + " shifted by " + std::to_string(shift));
      Bound bound(cases()[i], false, shift);
      FusedBody body = body_of(cases()[i]);
      std::vector<float> workspace(partial_bytes(body, vector_width(body), d) / 4 + 64, NAN);
      KernelCall call = bound.call(workspace.data(), nullptr, d);
      FusedLaunch l = fused_launch(call, body, d);
      int width = vector_width(body);
      bool fits = shift == 0 || (body.loads[0].dtype != DType::f32 && width <= 2);  // vectors of 4 bytes
      EXPECT_EQ(l.vector, width > 1 && fits);
      auto run = reinterpret_cast<void (*)(void**)>(
          dlsym(kernels, ((l.vector ? "vector_" : "scalar_") + std::to_string(i)).c_str()));
      ASSERT_TRUE(run);
      auto arguments = l.arguments();
      emulator::run(dim3(l.grid[0], l.grid[1]), dim3(l.block[0], l.block[1]), 0, [&] { run(arguments.data()); });
      for (size_t s = 0; s < body.sums.size(); ++s)
        reduce_partials(call, body.sums[s], l.partials + int64_t(s) * l.grid[1] * body.columns, l.grid[1],
                        body.columns);
      for (size_t w = workspace.size() - 64; w < workspace.size(); ++w) EXPECT_TRUE(std::isnan(workspace[w]));
      expect_outputs(cases()[i], bound);
    }
  dlclose(kernels);
}

#endif

}  // namespace
}  // namespace crest::cuda
