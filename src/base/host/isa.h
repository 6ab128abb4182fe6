// Processor classes and their kernels. Chosen once per process from cpuid, or by CREST_ISA.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace crest {

// Every class includes the ones before it. generic: the compiler's default target (x86-64: SSE2).
// avx2: x86-64-v3 (AVX2, FMA, F16C, BMI). avx512: x86-64-v4 (AVX-512 F, BW, DQ, VL, CD).
// avx512_bf16: dot products of bf16 (Cooper Lake, Zen 4). amx: matrix units for bf16 (AMX, Sapphire
// Rapids), and a system that lets this process use them.
enum class Isa { generic, avx2, avx512, avx512_bf16, amx };
inline constexpr std::array all_isas = {Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};
std::string_view name(Isa);
std::optional<Isa> isa_named(std::string_view);

// The best class of the machine and its operating system, ignoring CREST_ISA.
Isa best_isa();
// The class this process plans for: CREST_ISA, else the best. A class that the machine lacks can be
// planned for, but not run (make_runtime refuses). Usage errors: an unknown name; a class without
// kernels in this build (processors other than x86-64 have only generic).
Isa active_isa();
// The vector kernels of a class: generic, avx2 or avx512.
Isa vector_isa(Isa);
// The vector kernels of this process: of the active class, or of the best one if it is lower.
Isa running_vector_isa();

// "Intel(R) Xeon(R) Processor"; "unknown CPU" if the system does not report it.
std::string cpu_name();

}  // namespace crest
