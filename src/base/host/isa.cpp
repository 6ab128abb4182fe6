#include "host/isa.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "core/error.h"
#include "core/text.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace crest {

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::generic: return "generic";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_bf16: return "avx512_bf16";
    case Isa::amx: return "amx";
  }
  return "unknown";
}

std::optional<Isa> isa_named(std::string_view wanted) {
  for (Isa isa : all_isas)
    if (name(isa) == wanted) return isa;
  return std::nullopt;
}

namespace {

#if defined(__x86_64__)
// Linux grants the tile registers on request (Documentation/arch/x86/xstate.rst):
// ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA, for all threads of the process.
bool tiles_granted() {
#if defined(__linux__)
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return false;
#endif
}

// Intel SDM volume 2, CPUID; volume 1, 13.3 (XCR0): a feature is usable only if the system saves
// its registers.
Isa detect() {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return Isa::generic;
  bool osxsave = c >> 27 & 1, avx = c >> 28 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1, movbe = c >> 22 & 1;
  if (!osxsave || !avx) return Isa::generic;
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  bool ymm = (low & 0x6) == 0x6, zmm = (low & 0xe6) == 0xe6, tiles = (low & 0x60000) == 0x60000;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return Isa::generic;
  bool bmi1 = b >> 3 & 1, avx2 = b >> 5 & 1, bmi2 = b >> 8 & 1;
  bool amx_bf16 = (d >> 22 & 1) && (d >> 24 & 1);
  bool foundation = b >> 16 & 1, dq = b >> 17 & 1, cd = b >> 28 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1;
  uint32_t max_subleaf = a;
  bool avx512_bf16 = max_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
  bool lzcnt = __get_cpuid(0x80000001, &a, &b, &c, &d) && (c >> 5 & 1);
  if (!(ymm && avx2 && fma && f16c && movbe && bmi1 && bmi2 && lzcnt)) return Isa::generic;
  if (!(zmm && foundation && dq && cd && bw && vl)) return Isa::avx2;
  if (!avx512_bf16) return Isa::avx512;
  // The kernels for matrix units use the rounding instruction of avx512_bf16.
  return tiles && amx_bf16 && tiles_granted() ? Isa::amx : Isa::avx512_bf16;
}
constexpr bool has_kernels(Isa) { return true; }
#else
Isa detect() { return Isa::generic; }
constexpr bool has_kernels(Isa isa) { return isa == Isa::generic; }
#endif

Isa choose() {
  const char* wish = std::getenv("CREST_ISA");
  if (!wish || !*wish) return best_isa();
  std::string names;
  for (Isa isa : all_isas) names += (names.empty() ? "" : ", ") + std::string(name(isa));
  std::optional<Isa> isa = isa_named(wish);
  if (!isa)
    fail_usage("unknown processor class '" + printable(wish) + "'", "environment variable CREST_ISA",
               "Classes: " + names + ".");
  if (!has_kernels(*isa))
    fail_usage("this build has no kernels for " + std::string(wish), "environment variable CREST_ISA",
               "Unset it: on this processor only generic is available.");
  return *isa;
}

}  // namespace

Isa best_isa() {
  static const Isa isa = detect();
  return isa;
}

Isa active_isa() {
  static const Isa isa = choose();
  return isa;
}

Isa vector_isa(Isa isa) { return std::min(isa, Isa::avx512); }

Isa running_vector_isa() {
  static const Isa isa = vector_isa(std::min(active_isa(), best_isa()));
  return isa;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    size_t at = line.find(": ");
    if (at != std::string::npos) return line.substr(at + 2);
  }
  return "unknown CPU";
}

}  // namespace crest
