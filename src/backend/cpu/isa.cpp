#include "backend/cpu/isa.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "core/error.h"

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
  }
  return "unknown";
}

namespace {

struct Features {
  bool avx2 = false, avx512 = false, bf16 = false, amx_bf16 = false;
};

#if defined(__x86_64__)
// Intel SDM volume 2, CPUID; volume 1, 13.3 (XCR0): a feature counts only when the system saves its registers.
Features detect() {
  Features f;
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
  bool osxsave = c >> 27 & 1, avx = c >> 28 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1, movbe = c >> 22 & 1;
  if (!osxsave || !avx) return f;
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  bool ymm = (low & 0x6) == 0x6, zmm = (low & 0xe6) == 0xe6, tiles = (low & 0x60000) == 0x60000;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
  bool bmi1 = b >> 3 & 1, avx2 = b >> 5 & 1, bmi2 = b >> 8 & 1;
  bool amx_tiles = tiles && (d >> 22 & 1) && (d >> 24 & 1);
  bool foundation = b >> 16 & 1, dq = b >> 17 & 1, cd = b >> 28 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1;
  uint32_t max_subleaf = a;
  bool avx512_bf16 = max_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
  bool lzcnt = __get_cpuid(0x80000001, &a, &b, &c, &d) && (c >> 5 & 1);
  f.avx2 = ymm && avx2 && fma && f16c && movbe && bmi1 && bmi2 && lzcnt;
  f.avx512 = f.avx2 && zmm && foundation && dq && cd && bw && vl;
  f.amx_bf16 = amx_tiles && avx512_bf16;  // their kernels round by avx512_bf16's conversion
  f.bf16 = zmm && avx512_bf16;
  return f;
}
#else
Features detect() { return {}; }
#endif

const Features& features() {
  static const Features f = detect();
  return f;
}

Isa choose() {
  const char* wish = std::getenv("CREST_ISA");
  if (!wish || !*wish) return best_isa();
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512})
    if (name(isa) == wish) {
      if (isa > best_isa())
        fail_usage("this machine does not have " + std::string(wish), "environment variable CREST_ISA",
                   "unset it; the best here is " + std::string(name(best_isa())));
      return isa;
    }
  fail_usage("unknown instruction set '" + std::string(wish) + "'", "environment variable CREST_ISA",
             "use generic, avx2 or avx512");
}

}  // namespace

Isa best_isa() { return features().avx512 ? Isa::avx512 : features().avx2 ? Isa::avx2 : Isa::generic; }

Isa active_isa() {
  static const Isa isa = choose();
  return isa;
}

bool has_native_bf16() { return features().bf16; }

bool amx_available() {
#if defined(__x86_64__) && defined(__linux__)
  // Linux hands out the tiles' registers on request (Documentation/arch/x86/xstate.rst): ARCH_REQ_XCOMP_PERM of
  // XFEATURE_XTILEDATA, for all threads of the process.
  static const bool yes =
      features().amx_bf16 && active_isa() == Isa::avx512 && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  return yes;
#else
  return false;
#endif
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    size_t at = line.find(": ");
    if (at != std::string::npos) return line.substr(at + 2);
  }
  return "unknown CPU";
}

}  // namespace crest
