// Text of Programs: malformed text is an error with line and column, never a crash.
#include <gtest/gtest.h>

#include <limits>

#include "core/error.h"
#include "core/random.h"
#include "passes/tiny.h"
#include "program/text.h"
#include "program/verify.h"

using namespace crest;
using namespace crest::test;

namespace {

std::string parse_problem(const std::string& text) {
  try {
    parse_program(text, "x.prog");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

Program tiny(bool llama, const char* fusion, ProgramKind kind) {
  Recipe r = tiny_recipe(llama);
  r.fusion = fusion, r.precision = "fp16";
  Program p = forward_program(r, kind);
  run_passes(p, {r, kind});
  return p;
}

}  // namespace

TEST(Parse, MalformedTextNamesLineAndColumn) {
  struct Bad {
    std::string text, at, what;
  };
  const std::string head = "program p\nvalue %x f32[2,4] input\n";
  const std::vector<Bad> table = {
      {"", "x.prog:1:1", "'program' expected"},
      {"\n\n# nothing\n", "x.prog:4:", "'program' expected"},
      {"programme p\n", "x.prog:1:1", "'program' expected"},
      {head + "value\n", "x.prog:3:6", "'%' expected"},
      {head + "value %\n", "x.prog:3:8", "a word expected"},
      {head + "value %x f32[1]\n", "x.prog:3:", "%x is defined twice"},
      {head + "value %y f31[1]\n", "x.prog:3:13", "'f31' is not an element type"},
      {head + "value %y f32\n", "x.prog:3:13", "'[' expected"},
      {head + "value %y f32[a]\n", "x.prog:3:14", "a whole number expected"},
      {head + "value %y f32[1,]\n", "x.prog:3:16", "a whole number expected"},
      {head + "value %y f32[1\n", "x.prog:3:15", "']' expected"},
      {head + "value %y f32[-1]\n", "x.prog:3:", "a negative dimension"},
      {head + "value %y f32[1,1,1,1,1,1,1]\n", "x.prog:3:", "more than 6 dimensions"},
      {head + "value %y f32[99999999999999999999]\n", "x.prog:3:14", "a whole number expected"},
      {head + "value %y f32[4294967296,4294967296,4294967296]\n", "x.prog:3:", "too many elements"},
      {head + "value %y f32[0,9000000000000000000,9000000000000000000]\n", "x.prog:3:", "too many elements"},
      {head + "value %y f32[2] in %z+0\n", "x.prog:3:", "storage %z is not defined"},
      {head + "value %y f32[2] in %x\n", "x.prog:3:", "'in %STORAGE+OFFSET' expected"},
      {head + "value %y f32[2] in %x+\n", "x.prog:3:", "a whole number expected"},
      {head + "value %y f32[2] in %x+a\n", "x.prog:3:", "a whole number expected"},
      {head + "value %y f32[2] in %x+9223372036854775807\n", "x.prog:3:", "a layout beyond"},
      {head + "value %y f32[2] strides(1,2)\n", "x.prog:3:", "strides and shape differ in rank"},
      {head + "value %y f32[2] in %x+-3\n", "x.prog:3:", "a layout beyond"},
      {head + "value %y f32[1] strides(9223372036854775807)\n", "x.prog:3:", "a stride beyond"},
      {head + "value %y f32[2] strides(-1)\n", "x.prog:3:", "a negative dimension"},
      {head + "value %y f32[2] wieght\n", "x.prog:3:17", "end of line expected"},
      {head + "inputs %y\n", "x.prog:3:", "value %y is not defined above"},
      {head + "inputs %x %x\n", "x.prog:3:11", "end of line expected"},
      {head + "outputs %x,\n", "x.prog:3:", "'%' expected"},
      {head + "properties first=1\n", "x.prog:3:12", "'{' expected"},
      {head + "properties {first}\n", "x.prog:3:18", "'=' expected"},
      {head + "properties {first=}\n", "x.prog:3:19", "a whole number expected"},
      {head + "properties {first=1\n", "x.prog:3:20", "'}' expected"},
      {head + "properties {first=1.5x}\n", "x.prog:3:22", "'}' expected"},
      {head + "properties {a=\"x}\n", "x.prog:3:16", "a closing quote expected"},
      {head + "param %x [2,4] init(0.0)\n", "x.prog:3:", "',' expected"},
      {head + "param %x [2,4] init(a, 1.0)\n", "x.prog:3:21", "a number expected"},
      {head + "param %q [2,4] init(0.0, 1.0)\n", "x.prog:4:", "%q is not defined"},
      {head + "%y f32[2,4] tanh(%x) forward compute @a\n", "x.prog:3:", "'=' expected"},
      {head + "%y f32[2,4] = tahn(%x) forward compute @a\n", "x.prog:3:", "Did you mean 'tanh'"},
      {head + "%y f32[2,4] = tanh %x forward compute @a\n", "x.prog:3:20", "'(' expected"},
      {head + "%y f32[2,4] = tanh(%x forward compute @a\n", "x.prog:3:23", "')' expected"},
      {head + "%y f32[2,4] = tanh(%z) forward compute @a\n", "x.prog:3:", "%z is not defined above"},
      {head + "%y f32[2,4] = tanh(%x) compute @a\n", "x.prog:3:", "phase and stream expected"},
      {head + "%y f32[2,4] = tanh(%x) forward @a\n", "x.prog:3:", "phase and stream expected"},
      {head + "%y f32[2,4] = tanh(%x) forward compute a\n", "x.prog:3:40", "'@' expected"},
      {head + "%y f32[2,4] = tanh(%x) forward compute @a b\n", "x.prog:3:43", "end of line expected"},
      {head + "%y f32[2,4] = fused(%x) forward compute @a body\n", "x.prog:3:", "'{' expected"},
      {head + "%y f32[2,4] = fused(%x) forward compute @a body {\n  value %a f32[2,4]\n", "x.prog:", "'}' expected"},
      {head + "%y f32[2,4] = tanh(%x) forward compute @a\n}\n", "x.prog:4:1", "'%' expected"},
      {head + "what is this\n", "x.prog:3:1", "'%' expected"},
  };
  for (auto& bad : table) {
    std::string got = parse_problem(bad.text);
    EXPECT_NE(got.find(bad.at), std::string::npos) << bad.text << "  gives: " << got << "  not at " << bad.at;
    EXPECT_NE(got.find(bad.what), std::string::npos) << bad.text << "  gives: " << got;
  }
}

TEST(Parse, EscapesOfATerminalAreNotEchoed) {
  std::string got = parse_problem("program p\nvalue %x \x1b[31mf32[2]\n");
  EXPECT_NE(got, "");
  EXPECT_EQ(got.find('\x1b'), std::string::npos);
}

TEST(Parse, CommentsAndBlankLinesAreSkipped) {
  Program p =
      parse_program("# made by hand\n\nprogram p\n  # more\nvalue %x f32[2] input  # an input\noutputs %x\n", "x");
  EXPECT_EQ(p.name, "p");
  EXPECT_EQ(print(p), "program p\nvalue %x f32[2] input\noutputs %x\n");
}

TEST(Parse, AttributesKeepTheirTypes) {
  Program p;
  p.name = "p";
  p.properties.set("i", int64_t(-9007199254740993))
      .set("d", 0.1)
      .set("whole", 3.0)
      .set("big", 1e300)
      .set("tiny", 5e-324);
  p.properties.set("inf", std::numeric_limits<double>::infinity()).set("word", "a=b, {c}");
  p.properties.set("minus", -std::numeric_limits<double>::infinity()).set("most", std::numeric_limits<int64_t>::min());
  Program q = parse_program(print(p), "x");
  EXPECT_EQ(q.properties, p.properties) << print(p);
}

TEST(Parse, EveryKindOfProgramComesBack) {
  for (bool llama : {false, true})
    for (const char* fusion : {"on", "off"})
      for (auto kind : {ProgramKind::train, ProgramKind::update, ProgramKind::validation, ProgramKind::prefill,
                        ProgramKind::decode}) {
        Program p = tiny(llama, fusion, kind), q = parse_program(print(p), "x");
        EXPECT_EQ(print(q), print(p));
        EXPECT_EQ(q.code.size(), p.code.size());
        EXPECT_EQ(q.values.size(), p.values.size());
        EXPECT_EQ(q.params.size(), p.params.size());
        EXPECT_EQ(q.properties, p.properties);
        verify(q, "parse");
        for (size_t i = 0; i < p.code.size(); ++i) {
          EXPECT_EQ(q.code[i].op, p.code[i].op);
          EXPECT_EQ(q.code[i].attrs, p.code[i].attrs);
          EXPECT_EQ(q.code[i].origin, p.code[i].origin);
          EXPECT_EQ(bool(q.code[i].body), bool(p.code[i].body));
        }
      }
}

// 20,000 printed Programs with some bytes changed, removed, doubled or moved. The parser gives an
// Error or a Program; verify() accepts or refuses the Program, and print() prints it.
TEST(Parse, MutatedTextNeverCrashes) {
  std::vector<std::string> seeds = {
      print(tiny(false, "on", ProgramKind::train)), print(tiny(true, "off", ProgramKind::train)),
      print(tiny(false, "on", ProgramKind::update)), print(tiny(true, "on", ProgramKind::decode))};
  const std::string alphabet = "%[](){}=,+-.@#_\"\n 019exn\x01\xff";
  int parsed = 0, verified = 0;
  for (uint64_t n = 0; n < 20'000; ++n) {
    std::string text = seeds[n % seeds.size()];
    uint64_t count = 0;
    auto random = [&](uint64_t below) { return size_t(random_bits(7, n, count++) % below); };
    // Whole lines make the text short, so a change early is as frequent as one late.
    if (random(2)) text = text.substr(0, text.find('\n', random(text.size())) + 1);
    for (size_t changes = 1 + random(3); changes > 0; --changes) {
      size_t at = random(text.size());
      switch (random(5)) {
        case 0: text[at] = alphabet[random(alphabet.size())]; break;
        case 1: text[at] = char(random(256)); break;
        case 2: text.erase(at, 1 + random(8)); break;
        case 3: text.insert(at, text.substr(random(text.size()), random(12))); break;
        case 4: text.insert(at, 1, alphabet[random(alphabet.size())]); break;
      }
    }
    try {
      Program p = parse_program(text, "mutated");
      ++parsed;
      EXPECT_FALSE(print(p).empty());
      verify(p, "mutation");
      ++verified;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(parsed, 500);
  EXPECT_LT(parsed, 19'000);
  EXPECT_GT(verified, 100);
}
