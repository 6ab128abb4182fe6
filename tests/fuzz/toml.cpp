// The TOML guard and toml++ behind it. The library is compiled into this program instead of linked, so that its
// branches guide the fuzzer and its memory accesses are checked.
#undef TOML_SHARED_LIB
#undef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 1
#include "../../src/core/toml.cpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  try {
    (void)crest::parse_toml({reinterpret_cast<const char*>(data), bytes}, "fuzz");
  } catch (const crest::Error&) {
  }
  return 0;
}
