#include "backend/cuda/nvrtc.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "backend/cuda/loader.h"
#include "core/cache_folder.h"
#include "core/error.h"
#include "core/io.h"
#include "core/sha256.h"
#if CREST_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace crest::cuda {

namespace {

// The used functions of nvrtc.h; results are nvrtcResult, 0 is success.
struct Nvrtc {
  using Program = void*;
  int (*version)(int*, int*);
  int (*arch_count)(int*);
  int (*archs)(int*);
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names);
  int (*destroy)(Program*);
  int (*compile)(Program, int options, const char* const* texts);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
  int (*ptx_size)(Program, size_t*);
  int (*ptx)(Program, char*);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  const char* (*error_text)(int);

  void check(int code, const char* what) const {
    if (code) fail(fmt::format("{}: {}", what, error_text(code)), "NVRTC");
  }
};

const Nvrtc& nvrtc() {
  static const Nvrtc functions = [] {
    const Library& lib = nvrtc_library();
    Nvrtc n{};
    auto find = [&](auto& f, const char* name) { f = reinterpret_cast<std::decay_t<decltype(f)>>(symbol(lib, name)); };
    find(n.version, "nvrtcVersion");
    find(n.arch_count, "nvrtcGetNumSupportedArchs");
    find(n.archs, "nvrtcGetSupportedArchs");
    find(n.create, "nvrtcCreateProgram");
    find(n.destroy, "nvrtcDestroyProgram");
    find(n.compile, "nvrtcCompileProgram");
    find(n.cubin_size, "nvrtcGetCUBINSize");
    find(n.cubin, "nvrtcGetCUBIN");
    find(n.ptx_size, "nvrtcGetPTXSize");
    find(n.ptx, "nvrtcGetPTX");
    find(n.log_size, "nvrtcGetProgramLogSize");
    find(n.log, "nvrtcGetProgramLog");
    find(n.error_text, "nvrtcGetErrorString");
    return n;
  }();
  return functions;
}

struct Target {
  int arch = 0;
  bool ptx = false;  // for a device newer than the compiler
};

Target target(int sm) {
  const Nvrtc& n = nvrtc();
  int count = 0;
  n.check(n.arch_count(&count), "the list of architectures");
  std::vector<int> archs(size_t(std::max(count, 0)));
  n.check(n.archs(archs.data()), "the list of architectures");
  Target t;
  for (int a : archs)
    if (a <= sm) t.arch = std::max(t.arch, a);
  if (t.arch == 0) fail(fmt::format("NVRTC does not compile for compute capability {}.{}", sm / 10, sm % 10));
  t.ptx = t.arch != sm;
  return t;
}

std::vector<std::string> options(Target t) {
  return {fmt::format("--gpu-architecture={}_{}", t.ptx ? "compute" : "sm", t.arch), "--std=c++17"};
}

std::string version() {
  int major = 0, minor = 0;
  nvrtc().check(nvrtc().version(&major, &minor), "the version");
  return fmt::format("{}.{}", major, minor);
}

// First line of a cache file, to check the rest.
std::string header(const std::string& image) {
  return fmt::format("crest-compiled 1 {}\n", sha256_hex(image.data(), image.size()));
}

}  // namespace

const Library& nvrtc_library() {
#if CREST_HAVE_CUDA
  constexpr int built_for = CUDART_VERSION / 1000;
#else
  constexpr int built_for = 13;
#endif
  const Library& wanted = library("nvrtc", built_for);
  if (wanted.handle || built_for == 12) return wanted;
  const Library& older = library("nvrtc", 12);
  return older.handle ? older : wanted;
}

std::string compile(const std::string& source, int sm) {
  const Nvrtc& n = nvrtc();
  Target t = target(sm);
  Nvrtc::Program program = nullptr;
  n.check(n.create(&program, source.c_str(), "fused.cu", 0, nullptr, nullptr), "creation of a program");
  struct Guard {
    const Nvrtc& n;
    Nvrtc::Program* p;
    ~Guard() { n.destroy(p); }
  } guard{n, &program};
  auto flags = options(t);
  std::vector<const char*> texts;
  for (auto& f : flags) texts.push_back(f.c_str());
  size_t size = 0;
  if (int code = n.compile(program, int(texts.size()), texts.data())) {
    std::string log;
    if (n.log_size(program, &size) == 0) log.resize(size), n.log(program, log.data());
    fail_internal(fmt::format("a generated kernel does not compile: {}\n{}", n.error_text(code), log.c_str()));
  }
  n.check((t.ptx ? n.ptx_size : n.cubin_size)(program, &size), "the compiled size");
  std::string image(size, '\0');
  n.check((t.ptx ? n.ptx : n.cubin)(program, image.data()), "the compiled code");
  return image;
}

std::string compile_cache_folder() {
  if (std::string folder = cache_folder(); !folder.empty()) return join_path(folder, "fused");
  return ".crest-cache/fused";
}

std::string compile_cached(const std::string& source, int sm) {
  std::string key = source;
  for (auto& o : options(target(sm))) key += "\n" + o;
  key += "\n" + version();
  std::string folder = compile_cache_folder();
  std::string path = join_path(folder, sha256_hex(key.data(), key.size()) + ".cubin");
  try {
    if (path_exists(path)) {
      std::string file = read_file(path, 64 << 20);
      size_t line = file.find('\n');
      if (line != std::string::npos) {
        std::string image = file.substr(line + 1);
        if (file.compare(0, line + 1, header(image)) == 0) return image;
      }
    }
  } catch (const Error&) {  // unreadable is as good as absent
  }
  std::string image = compile(source, sm);
  try {
    create_directories(folder);
    write_file_atomic(path, header(image) + image);
  } catch (const Error&) {  // a home without write access costs a compilation each run, no more
  }
  return image;
}

}  // namespace crest::cuda
