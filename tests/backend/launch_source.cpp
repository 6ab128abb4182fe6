// Every kernel waits for its predecessors before it does anything visible to other kernels. The
// test reads the source of all kernels. A kernel without the wait would be a race on a GPU, where
// kernels overlap, and no other test would show it.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

#include "core/io.h"

namespace crest::cuda {
namespace {

namespace fs = std::filesystem;
const std::string wait = "wait_for_predecessors();";

std::string source_of(const fs::path& file) {
  std::string text = read_file(file.string(), 1 << 20), out;
  for (size_t i = 0; i < text.size(); ++i) {  // without comments
    std::string two = text.substr(i, 2);
    if (two == "//") i = text.find('\n', i);
    if (two == "/*") i = text.find("*/", i) + 2;
    if (i < text.size()) out += text[i];
  }
  return out;
}

size_t count(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// The body of the function at `begin`, without its braces.
std::string body_at(const std::string& text, size_t begin) {
  int parentheses = 0, braces = 0;
  size_t first = text.npos;
  for (size_t i = begin; i < text.size(); ++i) {
    char c = text[i];
    parentheses += c == '(', parentheses -= c == ')';
    if (first == text.npos && parentheses == 0 && c == ';') return "";  // a declaration
    if (c == '{' && (braces || parentheses == 0) && ++braces == 1) first = i + 1;
    if (c == '}' && braces && --braces == 0) return text.substr(first, i - first);
  }
  return "";
}

// The mistakes of a kernel's body; empty: none.
std::string problem(const std::string& body) {
  if (count(body, wait) != 1) return "it does not wait exactly once";
  std::string before = std::regex_replace(body.substr(0, body.find(wait)), std::regex(R"((^|\n)\s*#[^\n]*)"), "");
  if (std::count(before.begin(), before.end(), '{') != std::count(before.begin(), before.end(), '}'))
    return "it waits under a condition";
  if (before.find("return;") != before.npos) return "it may return before it waits";
  if (before.find("->") != before.npos || std::regex_search(before, std::regex(R"(\w\[|[=(,]\s*\*)")))
    return "it reads memory before it waits";
  // Index arithmetic, shared memory and barriers may come first.
  std::set<std::string> allowed = {"if",
                                   "for",
                                   "min",
                                   "max",
                                   "reinterpret_cast",
                                   "uint32_t",
                                   "barrier_init",
                                   "sync_block",
                                   "warp_index",
                                   "barrier_init_fence",
                                   "thread_index",
                                   "block_index",
                                   "block_count",
                                   "shared_address",
                                   "dynamic_shared",
                                   "tensor_prefetch"};
  std::regex lambda(R"(auto (\w+) = \[)"), call(R"((\w+)(<[^<>()]*>)?\()");
  for (std::sregex_iterator i(before.begin(), before.end(), lambda), end; i != end; ++i) allowed.insert((*i)[1]);
  for (std::sregex_iterator i(before.begin(), before.end(), call), end; i != end; ++i)
    if (!allowed.count((*i)[1])) return "it calls " + (*i)[1].str() + "() before it waits";
  return "";
}

const fs::path kernels_folder = fs::path(CREST_TEST_DIR) / ".." / "src" / "devices" / "backend" / "cuda";

std::vector<fs::path> sources() {
  std::vector<fs::path> files;
  for (auto& e : fs::recursive_directory_iterator(kernels_folder))
    if (std::set<std::string>{".cu", ".h", ".cpp"}.count(e.path().extension())) files.push_back(e.path());
  return files;
}

TEST(LaunchSource, EveryKernelWaitsFirst) {
  if (!fs::exists(kernels_folder)) GTEST_SKIP() << "a bundle comes without the sources";
  size_t kernels = 0;
  for (auto& file : sources()) {
    std::string text = source_of(file);
    if (file.filename() == "fused_source_text.h") {  // braces are doubled, as it is a format
      text = std::regex_replace(text, std::regex(R"(\{\{)"), "{");
      text = std::regex_replace(text, std::regex(R"(\}\})"), "}");
      text = std::regex_replace(text, std::regex(R"(\{[0-9]\})"), "name");
    }
    for (size_t at = text.find("__global__"); at != text.npos; at = text.find("__global__", at + 1)) {
      size_t line = text.rfind('\n', at) + 1;
      if (text.substr(line, at - line).find("#define") != text.npos) continue;
      std::string head = text.substr(at, 160), body = body_at(text, at);
      EXPECT_EQ(problem(body), "") << file.filename() << ": " << head;
      ++kernels;
    }
  }
  EXPECT_GE(kernels, 60u) << "kernels were not found";
}

// Other launches would not be checked.
TEST(LaunchSource, KernelsAreLaunchedInOnePlace) {
  if (!fs::exists(kernels_folder)) GTEST_SKIP() << "a bundle comes without the sources";
  const std::set<std::string> launchers = {"launch.h", "fused_nvrtc.cpp"};
  for (auto& file : sources()) {
    std::string text = source_of(file);
    EXPECT_EQ(text.find("<<<"), text.npos) << file;
    EXPECT_EQ(text.find("cudaLaunchKernel") != text.npos, launchers.count(file.filename()) > 0) << file;
  }
}

TEST(LaunchSource, TheCheckFindsWhatIsWrong) {
  EXPECT_EQ(problem("\n  wait_for_predecessors();\n  y[i] = x[i];\n"), "");
  EXPECT_EQ(problem("#if A\n  const int n = a.s.n;\n  if (thread_index() == 0) {\n barrier_init(b, 1);\n }\n"
                    "  auto full = [&](int i) { return base + i; };\n  const int f = full(2);\n  " +
                    wait),
            "");
  EXPECT_NE(problem("y[i] = x[i];"), "");
  EXPECT_NE(problem(wait + wait), "") << "twice";
  EXPECT_NE(problem("if (i < n) { " + wait + " }"), "");
  EXPECT_NE(problem("if (i >= n) return; " + wait), "");
  EXPECT_NE(problem("float v = x[0]; " + wait), "");
  EXPECT_NE(problem("if (s->found_inf) { } " + wait), "");
  EXPECT_NE(problem("float v = *x; " + wait), "");
  EXPECT_NE(problem("float v = load(x); " + wait), "");
  EXPECT_EQ(body_at("void f(A<B{}> a) { if (x) { y; } z; } int", 0), " if (x) { y; } z; ");
}

}  // namespace
}  // namespace crest::cuda
