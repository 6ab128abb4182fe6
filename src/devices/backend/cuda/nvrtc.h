// Compilation of CUDA C++ at run time through NVRTC, which needs no GPU. Results are kept on disk.
#pragma once
#include <string>

namespace crest::cuda {

struct Library;

// NVRTC of this build's CUDA version, else an older one; without either, Library::problem says so.
const Library& nvrtc_library();

// Device code for compute capability `sm` (90 for 9.0): a cubin, or PTX where this NVRTC is older
// than the device. Throws an Error with the compiler's log when the source does not compile, or
// when NVRTC is missing.
std::string compile(const std::string& source, int sm);

// The same through the cache, one file a source, compiler version and architecture. A damaged file
// is compiled again and replaced; a cache without write access is no error.
std::string compile_cached(const std::string& source, int sm);

// $CREST_CACHE/fused, else $XDG_CACHE_HOME/crest/fused, else ~/.cache/crest/fused.
std::string compile_cache_folder();

}  // namespace crest::cuda
