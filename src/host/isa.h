// Classes of processors: which kernels a CPU runs. Chosen once per process from cpuid, or by CREST_ISA.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace crest {

// Every class has what the ones before it have.
// generic: what the compiler's default target has (x86-64: SSE2). avx2: x86-64-v3 (AVX2, FMA, F16C, BMI). avx512:
// x86-64-v4 (AVX-512 F, BW, DQ, VL, CD). avx512_bf16: dot products of bf16 (Cooper Lake, Zen 4). amx: matrix units for
// bf16 (AMX, Sapphire Rapids), and a system that lets this process use them.
enum class Isa { generic, avx2, avx512, avx512_bf16, amx };
inline constexpr std::array all_isas = {Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};
std::string_view name(Isa);
std::optional<Isa> isa_named(std::string_view);

// What the machine and its operating system support, without regard to CREST_ISA.
Isa best_isa();
// The class that this process plans for: CREST_ISA, else the best. A class that the machine does not have can be
// planned for, not run on (make_runtime refuses). Usage errors: an unknown name; a class that this build has no kernels
// of (a processor that is not x86-64 has generic only).
Isa active_isa();
// Of the vector kernels that a class runs: generic, avx2 or avx512.
Isa vector_isa(Isa);
// Of the vector kernels that this process runs: those of the active class, or of the best where that is lower.
Isa running_vector_isa();

// "Intel(R) Xeon(R) Processor"; "unknown CPU" where the system does not tell.
std::string cpu_name();

}  // namespace crest
