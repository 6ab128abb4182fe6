// The guards before JSON and TOML, SHA-256, and the allowed memory of parsing.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <new>

#include "checkpoint/name_pattern.h"
#include "checkpoint/safetensors_folder.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/toml_check.h"
#include "slowness.h"
#include "tiny.h"

using namespace crest;
using namespace crest::test;

// Every allocation of this test program is counted, so the promise "at most 2x file + 64 MB" is
// measured, not argued.
static std::atomic<int64_t> held{0}, peak{0};

static void* counted_allocate(size_t bytes) {
  void* p = std::malloc(bytes ? bytes : 1);
  if (!p) throw std::bad_alloc();
  int64_t now = held += int64_t(malloc_usable_size(p));
  for (int64_t before = peak; now > before && !peak.compare_exchange_weak(before, now);) {
  }
  return p;
}
static void counted_free(void* p) {
  if (p) held -= int64_t(malloc_usable_size(p));
  std::free(p);
}
void* operator new(size_t bytes) { return counted_allocate(bytes); }
void* operator new[](size_t bytes) { return counted_allocate(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted_allocate(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return counted_allocate(bytes); }
void operator delete(void* p) noexcept { counted_free(p); }
void operator delete[](void* p) noexcept { counted_free(p); }
void operator delete(void* p, size_t) noexcept { counted_free(p); }
void operator delete[](void* p, size_t) noexcept { counted_free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { counted_free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { counted_free(p); }

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr double seconds_allowed = 10;  // sanitizers slow the parser down some five times
#else
constexpr double seconds_allowed = 1;
#endif

struct Cost {
  int64_t bytes;
  double seconds;
};
template <class Action>
Cost cost_of(Action action) {
  int64_t before = held;
  peak = before;
  std::clock_t start = std::clock();  // processor time: other programs on the machine do not count
  try {
    action();
  } catch (const Error&) {
  }
  return {peak - before, double(std::clock() - start) / CLOCKS_PER_SEC};
}

std::string repeat(const std::string& text, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += text;
  return out;
}

}  // namespace

TEST(Memory, HostileHeadersStayWithinTwiceTheFileAnd64MB) {
  MemoryFolder folder;
  constexpr size_t size = 30 << 20;
  std::string entry = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)", many = "{";
  for (int i = 0; i < 100'000; ++i)
    many += "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0,0,0,0,0,0,0,0],"data_offsets":[0,0]},)";
  std::vector<std::pair<const char*, std::string>> headers = {
      {"one endless name", "{\"" + std::string(size, 'a')},
      {"endless escapes", "{\"" + repeat("\\u00e9", size)},
      {"metadata", "{\"__metadata__\":{" + repeat("\"\":\"\",", size)},
      {"a long metadata text", "{\"__metadata__\":{\"a\":\"" + std::string(8'000'000, 'x') + "\"}}"},
      {"a list", R"({"a":{"shape":[)" + repeat("0,", size)},
      {"an endless number", R"({"a":{"shape":[)" + std::string(size, '1')},
      {"nesting", "{\"a\":" + std::string(size, '[')},
      {"tensors", many.substr(0, many.size() - 1) + "}"},
      {"spaces", "{" + std::string(size, ' ')},
      {"the same name", "{" + repeat(entry, size)},
  };
  for (auto& [what, header] : headers) {
    std::string length;
    for (int i = 0; i < 8; ++i) length += char(uint64_t(header.size()) >> (8 * i));
    write_file_synced(folder / "x.safetensors", length + header);
    Cost cost = cost_of([&] { SafetensorsFile::open(folder / "x.safetensors"); });
    EXPECT_LE(cost.bytes, int64_t(2 * header.size()) + (64 << 20)) << what;
    EXPECT_LT(cost.seconds, seconds_allowed * crest::test::slowness()) << what;
  }
}

TEST(Memory, HostileJsonStaysWithinTwiceTheFileAnd64MB) {
  constexpr size_t size = 30 << 20;
  for (std::string unit : {"0,", "[],", "{},", "\"\",", "[[[[]]]],", "{\"a\":{\"b\":0}},", "1e5,"}) {
    std::string text = "[" + repeat(unit, size) + "0]";
    Cost cost = cost_of([&] { parse_json_guarded(text, {}, "x"); });
    EXPECT_LE(cost.bytes, int64_t(2 * text.size()) + (64 << 20)) << unit;
    // The largest file within the default limits is built: it must fit too.
    std::string most = "[" + repeat(unit, 350'000 / std::max<size_t>(1, unit.size() / 2) * unit.size()) + "0]";
    cost = cost_of([&] { parse_json_guarded(most, {}, "x"); });
    EXPECT_LE(cost.bytes, int64_t(2 * most.size()) + (64 << 20)) << unit;
  }
  std::string keys = "{";
  for (int i = 0; i < 199'000; ++i) keys += "\"" + std::to_string(i) + "\":0,";
  keys += "\"x\":0}";
  EXPECT_EQ(error_of([&] { parse_json_guarded(keys, {}, "x"); }), "");
  EXPECT_LE(cost_of([&] { parse_json_guarded(keys, {}, "x"); }).bytes, int64_t(2 * keys.size()) + (64 << 20));
}

TEST(Memory, ATensorIsReadWithoutACopy) {
  MemoryFolder folder;
  std::vector<float> data(4 << 20, 1.5f);
  write_safetensors(folder / "x.safetensors", {{{"a", DType::f32, {4 << 20}}, data.data()}});
  Cost cost = cost_of([&] {
    auto file = SafetensorsFile::open(folder / "x.safetensors");
    file.read_hashed(0, data.data(), data.size() * 4);
    file.hash(0);
  });
  EXPECT_LT(cost.bytes, 1 << 20);
}

TEST(Json, ErrorsNameLineAndColumn) {
  auto error = [](const std::string& text) { return error_of([&] { parse_json_guarded(text, {}, "f.json"); }); };
  EXPECT_EQ(error(R"({"a": [1, 2.5, "x", null, true]})"), "");
  EXPECT_TRUE(contains(error("{\n  \"a\": x}"), "f.json (line 2, column 8)")) << error("{\n  \"a\": x}");
  EXPECT_TRUE(contains(error("{\"a\": 1"), "the JSON text is incomplete"));
  EXPECT_TRUE(contains(error(""), "the JSON text is incomplete"));
  EXPECT_TRUE(contains(error(std::string(1'000'000, '[')), "nested deeper than 32"));
  EXPECT_TRUE(contains(error(repeat("{\"a\":", 5'000'000)), "nested deeper than 32"));
  struct Case {
    const char *text, *where, *said;
  };
  for (auto& c :
       std::vector<Case>{{"1e999", "(line 1, column 1)", "number overflow parsing '1e999'"},
                         {"{\"a\":\n -1e999, \"b\": 1}", "(line 2, column 2)", "number overflow parsing '-1e999'"},
                         {"{\"a\": NaN}", "(line 1, column 7)", "not valid JSON, which has no NaN"},
                         {"[1, -Infinity]", "(line 1, column 5)", "which has no -Infinity"},
                         {"[Infinity", "(line 1, column 2)", "which has no Infinity"},
                         {"[nul]", "(line 1, column 2)", "invalid literal"},
                         {"[1] 2", "(line 1, column 5)", "unexpected number literal"},
                         {"{\"a\": 'b'}", "(line 1, column 7)", "invalid literal"},
                         {"{\"a\": \"b\tc\"}", "(line 1, column 9)", "control character U+0009"},
                         {"{\"a\": \"\\ud800\"}", "(line 1, column 14)", "surrogate U+D800..U+DBFF must be"},
                         {"{\"a\": \"\\udc00\"}", "(line 1, column 13)", "surrogate U+DC00..U+DFFF must"},
                         {"\"\xff\"", "(line 1, column 2)", "ill-formed UTF-8 byte"}})
    for (auto part : {c.where, c.said, "not valid JSON"})
      EXPECT_TRUE(contains(error(c.text), part)) << c.text << ": " << error(c.text);
  EXPECT_EQ(error("[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[\"]"), "") << "brackets in text do not nest";
  EXPECT_TRUE(contains(error_of([&] { parse_json_guarded("[1,2,3]", {.values = 3}, "f"); }), "more than 3 values"));
  EXPECT_TRUE(contains(error_of([&] { parse_json_guarded("[1,2,3]", {.bytes = 3}, "f"); }), "larger than"));
}

TEST(Toml, ErrorsAreUsageErrorsWithLineAndColumn) {
  auto error = [](const std::string& text) { return error_of([&] { check_toml(text, "f.toml"); }); };
  EXPECT_EQ(
      error(
          "[model]\nlayers = 4\n'quoted key' = [0.9, 0.95]\n[[stage]]\nx = {a = 1.5, b.c = \"\xc3\xa9\"} # \xc3\xa9\n"),
      "");
  EXPECT_EQ(error("\xef\xbb\xbf"
                  "a = \"\"\"x\"\"\"\"\nb = '''\n[[[[ '''\n[ c . d ]"),
            "");
  EXPECT_TRUE(contains(error("a = 1\nb = ] 2"), "f.toml (line 2, column 5)")) << error("a = 1\nb = ] 2");
  EXPECT_TRUE(contains(error("a = 1\na = 2"), "line 2")) << "defined twice";
  EXPECT_TRUE(contains(error("a = 1\n[#"), "line 2, column 1"));
  EXPECT_TRUE(contains(error("na\xc3\xafve = 1"), "in quotes"));
  // Inputs with an assertion or undefined behavior in toml++ 3.3 itself, found by fuzzing.
  EXPECT_TRUE(contains(error("a = 1979-05-27T:06:32e00Z"), "times of day"));
  // toml++ 3.3 takes the first for a date with a time and asserts a second digit.
  EXPECT_TRUE(contains(error("a = 0663-83-0f 6,"), "a second value"));
  EXPECT_TRUE(contains(error("a = [1979-05-27 6]"), "a second value"));
  EXPECT_TRUE(contains(error("a = 1979-05-27 07:32:00"), "a date with a time"));
  EXPECT_EQ(error("a = [1, 2] \nb = 1979-05-27 # 6\nc = { d = 1, e = [ 2 , 3 ] }\nf = \"1979-05-27 6\"\n"), "");
  EXPECT_TRUE(contains(error("a = 1[\"\"\"[\xca\xa2\" = 2"), "inside a word"));
  EXPECT_TRUE(contains(error("a = \"\"\"x\\\n \xc3\xa9\"\"\""), "a backslash before"));
  EXPECT_EQ(error("a = \"\"\"x\\\n y\xc3\xa9\"\"\""), "");
  EXPECT_TRUE(contains(error("a = [}.9, 0.9"), "closes nothing"));
  EXPECT_TRUE(contains(error("a = [1=='\xca\xa2']"), "a second '='"));
  EXPECT_EQ(error("a = [{b = 1, c = 2}, {b = 3}]"), "");
  EXPECT_EQ(error("a = 1979-05-27 # 07:32\nb = '07:32'"), "");
  for (std::string bomb : {repeat("a.", 1'000'000) + "a = 1", "[" + repeat("a.", 1'000'000) + "a]",
                           "a = " + std::string(1'000'000, '['), "a = " + repeat("{a=", 1'000'000),
                           "a = " + repeat("{a.a.a.a.a=", 1'000'000), "[" + repeat("a . ", 1'000'000) + "a]"})
    EXPECT_TRUE(contains(error(bomb), "nested deeper than 64")) << bomb.substr(0, 40);
  for (std::string bad : {"a", "a =", "a = \"", "a = '''", "[a", "[[a]", "a = 0xffffffffffffffffff", "= 1", "\xff = 1"})
    EXPECT_NE(error(bad), "") << bad;
  EXPECT_TRUE(contains(error(std::string(5 << 20, '\n')), "larger than"));
  try {
    check_toml("a = ", "f");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
  }
}

TEST(Sha256, KnownAnswersAndBothImplementations) {
  EXPECT_EQ(sha256_hex("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  EXPECT_EQ(sha256_hex(two_blocks.data(), two_blocks.size()),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  std::string million(1'000'000, 'a');
  EXPECT_EQ(sha256_hex(million.data(), million.size()),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // Every length around the block borders, in uneven pieces, by instructions and by the portable
  // rounds.
  for (size_t n = 0; n < 300; ++n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += char(mix(n * 1000 + i));
    Sha256 portable(false), pieces(true);
    portable.update(text.data(), n);
    for (size_t at = 0, step = 1; at < n; at += step, step = step * 3 % 71 + 1)
      pieces.update(text.data() + at, std::min(step, n - at));
    Digest expected = sha256(text.data(), n);
    EXPECT_EQ(portable.digest(), expected) << n;
    EXPECT_EQ(pieces.digest(), expected) << n;
  }
}

// The answers are those of Python's re.fullmatch.
TEST(NamePattern, MatchesAsPython) {
  const std::string name = "model.layers.12.self_attn.q_proj";
  auto matches = [](const std::string& pattern, const std::string& text) {
    return NamePattern(pattern, "a test").matches(text);
  };
  for (const char* pattern :
       {".*q_proj", ".*\\.(q|v)_proj", "model\\.layers\\.\\d+\\..*", ".*layers.(?:1[0-5]|2).*", "^[a-z_.0-9]+$",
        "(.*)*(.*)*(.*)*q_proj", "m.{31}", ".*\\b12\\b.*", "[^!]{3,}", "(?P<whole>.+?)", "|.*", "(model|.)*"})
    EXPECT_TRUE(matches(pattern, name)) << pattern;
  for (const char* pattern :
       {"q_proj", ".*[kv]_proj", "model.layers", "", "m.{30}", "\\D*", "(.*)*(.*)*(.*)*!", "$.*", ".*\\b1\\b.*", "a|b"})
    EXPECT_FALSE(matches(pattern, name)) << pattern;
  EXPECT_TRUE(matches("[]^-]+", "^-]"));
  EXPECT_TRUE(matches("a{,2}b{x", "aab{x"));
  for (const char* pattern :
       {"(", ")", "[a", "*", "a**", "a++", "(?=a)", "(?i)a", "(a)\\1", "[b-a]", "a{2,1}", "\\", "(a{1000}){1000}"})
    EXPECT_THROW(NamePattern(pattern, "a test"), Error) << pattern;
}
