#include "core/toml_string.h"

#include <gtest/gtest.h>

#include "core/random.h"
#include "core/text.h"
#include "core/toml.h"

using namespace crest;

namespace {

std::string utf8(uint32_t code) {
  std::string out;
  if (code < 0x80) return std::string(1, char(code));
  int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  out += char((more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0) | code >> (6 * more));
  while (more-- > 0) out += char(0x80 | (code >> (6 * more) & 0x3F));
  return out;
}

std::string read_back(const std::string& text) {
  toml::table table = parse_toml("key = " + toml_string(text) + "\nlast = 1\n", "test");
  EXPECT_EQ(table["last"].value<int64_t>(), 1);
  return table["key"].value<std::string>().value_or("no text");
}

}  // namespace

TEST(TomlString, EveryCharacterIsReadBack) {
  std::string all;
  for (uint32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 97)
    if (code < 0xD800 || code > 0xDFFF) all += utf8(code);
  for (uint32_t code : {0xD7FFu, 0xE000u, 0xFEFFu, 0xFFFEu, 0xFFFFu, 0x1FFFFu, 0x10FFFFu}) all += utf8(code);
  ASSERT_TRUE(is_utf8(all));
  EXPECT_EQ(read_back(all), all);
  for (uint32_t code = 0; code < 0x300; ++code) EXPECT_EQ(read_back(utf8(code)), utf8(code)) << code;
}

TEST(TomlString, AnyMixtureIsReadBack) {
  const std::string parts[] = {"\\", "\"", "'", "\"\"\"", "\n", "\r", "\t", "\x7f", "\x01", "#",        "=",
                               "[",  "]",  "{", "}",      ",",  " ",  "u",  "U0",   "a",    "\xc3\xa4", "\xe2\x80\xae"};
  for (uint64_t i = 0; i < 2000; ++i) {
    std::string text;
    for (uint64_t k = 0; k < 1 + i % 12; ++k) text += parts[random_bits(5, i, k) % std::size(parts)];
    EXPECT_EQ(read_back(text), text);
  }
}

TEST(TomlString, WhatIsNoUtf8BecomesTheReplacementCharacter) {
  for (const char* bad : {"\xff", "\x80", "\xed\xa0\x80", "\xc0\xaf", "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE(is_utf8(bad));
    EXPECT_NE(read_back("a" + std::string(bad) + "b").find("\xef\xbf\xbd"), std::string::npos);
  }
}
