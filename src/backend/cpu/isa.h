// Which instruction set the fast CPU kernels run: chosen once per process from cpuid, the same for every kernel.
#pragma once
#include <string>
#include <string_view>

namespace crest {

// generic: what the compiler's default target has (x86-64: SSE2). avx2: x86-64-v3 (AVX2, FMA, F16C, BMI).
// avx512: x86-64-v4 (AVX-512 F, BW, DQ, VL, CD).
enum class Isa { generic, avx2, avx512 };
std::string_view name(Isa);

// The best instruction set of this machine. The environment variable CREST_ISA=generic|avx2|avx512 chooses a lower one
// (for tests and comparisons); a usage error when its value is unknown or the machine does not have it.
Isa active_isa();
// What the machine and its operating system support, without regard to CREST_ISA.
Isa best_isa();
// Dot products (avx512_bf16) or matrix units (amx_bf16) for bf16 in hardware.
bool has_native_bf16();
// Whether there are matrix units for bf16 (AMX) and the system lets this process use them.
bool amx_available();
// "Intel(R) Xeon(R) Processor"; "unknown CPU" where the system does not tell.
std::string cpu_name();

}  // namespace crest
