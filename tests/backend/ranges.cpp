// NVTX ranges as a tool receives them. This program is the tool.
#include "backend/cuda/ranges.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"

#if CREST_HAVE_CUDA && __has_include(<nvtx3/nvToolsExt.h>)
#define NVTX_STATIC_INJECTION_IMPL
extern "C" int (*InitializeInjectionNvtx2_fnptr)(const void* (*)(uint32_t));  // and the header reads it
#include <nvtx3/nvToolsExt.h>

static std::vector<std::string> seen;
static int domain;

static nvtxDomainHandle_t create(const char* name) {
  seen.push_back(std::string("domain ") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}
static int push(nvtxDomainHandle_t in, const nvtxEventAttributes_t* event) {
  if (reinterpret_cast<int*>(in) == &domain) seen.push_back(std::string("push ") + event->message.ascii);
  return 0;
}
static int pop(nvtxDomainHandle_t in) {
  if (reinterpret_cast<int*>(in) == &domain) seen.emplace_back("pop");
  return 0;
}

static int NVTX_API attach(NvtxGetExportTableFunc_t table_of) {
  auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = attach;

TEST(Ranges, ReachATool) {
  seen.clear();
  crest::cuda::Ranges ranges;
  ranges.push("step 3");
  ranges.push(crest::cuda::range_name("cuda.norm", "h.0.ln_1"));
  ranges.pop();
  ranges.pop();
  EXPECT_EQ(seen, (std::vector<std::string>{"domain Crest", "push step 3", "push cuda.norm h.0.ln_1", "pop", "pop"}));
}
#else
TEST(Ranges, ABuildWithoutNvtxSaysSo) {
  try {
    crest::cuda::Ranges ranges;
    FAIL() << "there is no NVTX";
  } catch (const crest::Error& e) {
    EXPECT_NE(std::string(e.what()).find("--nvtx"), std::string::npos) << e.what();
  }
}
#endif

TEST(Ranges, AreNamedByKernelAndScope) {
  EXPECT_EQ(crest::cuda::range_name("cuda.linear.cublaslt", "h.3.attn.qkv"), "cuda.linear.cublaslt h.3.attn.qkv");
  EXPECT_EQ(crest::cuda::range_name("cuda.finish_step", ""), "cuda.finish_step");
}
