#include "data/generated_text.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/sha256.h"

using namespace crest;

// Losses from experiments hold for this text alone.
TEST(GeneratedText, IsTheSameEverywhere) {
  std::string text = generated_text(1 << 20);
  EXPECT_EQ(text.size(), size_t(1) << 20);
  EXPECT_EQ(sha256_hex(text.data(), text.size()).substr(0, 16), "fd179bec716adc8e");
  EXPECT_EQ(generated_text(1000), text.substr(0, 1000));
  EXPECT_EQ(generated_text(0), "");
}

TEST(GeneratedText, HasWordsSentencesAndLines) {
  std::string text = generated_text(1 << 18);
  std::set<char> letters(text.begin(), text.end());
  EXPECT_TRUE(letters.count(' ') && letters.count('.') && letters.count('\n'));
  std::map<std::string, int> words;
  std::string word;
  for (char c : text)
    if (c >= 'a' && c <= 'z')
      word += c;
    else if (!word.empty())
      ++words[word], word.clear();
  EXPECT_GT(words.size(), 1000u);
  for (auto& [w, n] : words) EXPECT_LT(n, 40'000 / 4) << w;  // no word is a quarter of them
}
