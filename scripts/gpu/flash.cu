// The kernels of attention on f32 and of wide heads behind a C interface, for scripts/gpu/flash.py; flash.sh builds it.
#include <cmath>
#include <cstring>

#include "backend/cuda/device/platform.h"
#include "backend/cuda/kernel.h"
#include "core/random.h"
#include "core/scalars.h"
#include "program/op.h"

namespace crest {

const char* KernelCall::instr_name() const { return "attention"; }

namespace cuda {

#ifdef BEFORE  // kernels of a version without those for wide heads
#define FLASH_KERNELS(K) K(flash_fp32) K(attention_generic)
#else
#define FLASH_KERNELS(K) \
  K(flash_tf32) K(flash_fp32) K(flash_wide) K(flash_wide_tf32) K(flash_wide_fp32) K(attention_generic)
#endif
#define DECLARE(name)     \
  Kernel name##_kernel(); \
  Kernel name##_grad_kernel();
FLASH_KERNELS(DECLARE)

void check(int code, const char* what) {
  if (code) fail(cudaGetErrorString(cudaError_t(code)), what);
}

}  // namespace cuda
}  // namespace crest

using namespace crest;

struct Call {
  int64_t batch, tokens, heads, kv_heads, head_dim, causal, dtype, tf32;  // dtype: 0 f32, 1 bf16, 2 f16
  double scale, p;
  const void *positions, *scalars;
  int64_t rng_id;
  const void *d_o, *qkv, *o;
  void *lse, *dqkv, *out, *workspace, *stream;
};

namespace {

std::string last_error;

// A Program of one instruction.
struct Single {
  Program program;
  Device device;
  std::vector<void*> in, out;

  ValueId value(DType t, const Shape& s) {
    Value v;
    v.name = "v" + std::to_string(program.values.size()), v.dtype = t, v.shape = s;
    v.layout = {ValueId(program.values.size()), 0, s.contiguous_strides()};
    program.values.push_back(v);
    return ValueId(program.values.size() - 1);
  }
  void input(Instr& i, bool there, DType t, const Shape& s, const void* p) {
    i.in.push_back(there ? value(t, s) : no_value);
    in.push_back(const_cast<void*>(p));
  }
  void output(Instr& i, DType t, const Shape& s, void* p) { i.out.push_back(value(t, s)), out.push_back(p); }

  Single(const Call& c, bool grad) {
    DType t = c.dtype == 0 ? DType::f32 : c.dtype == 1 ? DType::bf16 : DType::f16;
    Shape qkv = {c.batch, c.tokens, (c.heads + 2 * c.kv_heads) * c.head_dim};
    Shape o = {c.batch, c.tokens, c.heads * c.head_dim}, lse = {c.batch, c.heads, c.tokens};
    Instr i;
    i.attrs.set("heads", c.heads).set("kv_heads", c.kv_heads).set("causal", c.causal).set("scale", c.scale);
    if (c.p > 0) i.attrs.set("p", c.p).set("rng_id", c.rng_id);
    if (c.tf32) i.attrs.set("tf32", 1);
    if (grad) input(i, true, t, o, c.d_o);
    input(i, true, t, qkv, c.qkv);
    if (grad) input(i, true, t, o, c.o), input(i, true, DType::f32, lse, c.lse);
    input(i, c.scalars, DType::u8, {64}, c.scalars);
    input(i, c.positions, DType::i32, {c.batch, c.tokens}, c.positions);
    if (grad)
      output(i, t, qkv, c.dqkv);
    else
      output(i, t, o, c.out), output(i, DType::f32, lse, c.lse);
    program.code.push_back(i);
    cudaDeviceProp p;
    cudaGetDeviceProperties(&p, 0);
    device.kind = "cuda", device.sm = 10 * p.major + p.minor, device.multiprocessors = p.multiProcessorCount;
    device.shared_per_block = int64_t(p.sharedMemPerBlockOptin);
  }
  KernelQuery query() const { return {program, program.code[0], device}; }
};

Kernel find(const char* name, bool grad) {
#define FIND(kernel) \
  if (Kernel k = grad ? cuda::kernel##_grad_kernel() : cuda::kernel##_kernel(); !std::strcmp(k.name, name)) return k;
  FLASH_KERNELS(FIND)
  fail("no such kernel", name);
}

}  // namespace

// Why a kernel refuses the call; empty when it does not.
extern "C" const char* flash_reject(const char* name, int64_t grad, const Call* c) {
  try {
    last_error = find(name, grad).reject(Single(*c, grad).query());
  } catch (const std::exception& e) {
    last_error = e.what();
  }
  return last_error.c_str();
}

extern "C" int64_t flash_workspace(const char* name, int64_t grad, const Call* c) {
  Kernel k = find(name, grad);
  return k.workspace ? int64_t(k.workspace(Single(*c, grad).query())) : 0;
}

// Empty, or what failed.
extern "C" const char* flash_run(const char* name, int64_t grad, const Call* c) {
  last_error.clear();
  try {
    Single s(*c, grad);
    find(name, grad)
        .launch({s.program, s.program.code[0], s.in.data(), s.out.data(), c->workspace, nullptr, 1, nullptr, c->stream,
                 &s.device});
  } catch (const std::exception& e) {
    last_error = e.what();
  }
  return last_error.c_str();
}

// Step scalars on the device, for dropout.
extern "C" void* flash_scalars(int64_t seed, int64_t first_sample) {
  Scalars host = {};
  host.seed = decltype(host.seed)(seed), host.sample_base = decltype(host.sample_base)(first_sample);
  void* p = nullptr;
  if (cudaMalloc(&p, sizeof host) != cudaSuccess) return nullptr;
  cudaMemcpy(p, &host, sizeof host, cudaMemcpyHostToDevice);
  return p;
}

// Of [batch, heads, tokens, tokens]: 1 where a probability is kept.
extern "C" void flash_kept(const Call* c, int64_t seed, int64_t first_sample, unsigned char* to) {
  auto threshold = uint32_t(std::ceil(c->p * 0x1p24));
  for (int64_t b = 0; b < c->batch; ++b) {
    uint64_t stream = dropout_stream(uint64_t(first_sample + b), uint32_t(c->rng_id));
    for (int64_t i = 0; i < c->heads * c->tokens * c->tokens; ++i)
      *to++ = random_bits(uint64_t(seed), stream, uint64_t(i)) >> 8 >= threshold;
  }
}
