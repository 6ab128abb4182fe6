// The TOML guard and toml++ behind it. The library is compiled into this program instead of linked,
// so its branches guide the fuzzer and its memory accesses are checked.
#ifdef CREST_MALFORMED_TEST
#include "core/toml_check.h"
#else
#undef TOML_SHARED_LIB
#undef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 1
#include "../../src/base/core/toml.cpp"
#endif

#include "fuzz.h"

static void fuzz_toml(std::string_view text) {
  crest::fuzz::or_error([&] { crest::check_toml(text, "fuzz"); });
}
CREST_FUZZ_TARGET(fuzz_toml)
