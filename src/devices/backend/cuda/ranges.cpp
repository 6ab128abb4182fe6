#include "backend/cuda/ranges.h"

#include "core/error.h"

// A header of the CUDA toolkit; it opens the tool's library at run time.
#if CREST_HAVE_CUDA && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define CREST_NVTX 1
#else
#define CREST_NVTX 0
#endif

namespace crest::cuda {

std::string range_name(const std::string& kernel, const std::string& scope) {
  return scope.empty() ? kernel : kernel + " " + scope;
}

#if CREST_NVTX

static nvtxDomainHandle_t handle(void* domain) { return static_cast<nvtxDomainHandle_t>(domain); }

// The same handle for every call.
Ranges::Ranges() : domain_(nvtxDomainCreateA("Crest")) {}

void Ranges::push(const std::string& name) {
  nvtxEventAttributes_t event = {};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name.c_str();
  nvtxDomainRangePushEx(handle(domain_), &event);
}

void Ranges::pop() { nvtxDomainRangePop(handle(domain_)); }

#else

Ranges::Ranges() {
  fail_usage("this build of Crest has no NVTX", "--nvtx", "Build with a CUDA toolkit that has nvtx3/nvToolsExt.h.");
}
void Ranges::push(const std::string&) {}
void Ranges::pop() {}

#endif

}  // namespace crest::cuda
