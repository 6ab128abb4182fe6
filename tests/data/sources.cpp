// Users' files: compressed files, JSON lines without a name, and other files than text.
#include "data/sources.h"

#include <unistd.h>

#include <thread>

#include "data/corpus.h"
#include "data/dataset.h"
#include "data/file_kind.h"
#include "data/helpers.h"
#include "data/prepare.h"
#include "packed.h"

using namespace crest;
using namespace crest::test;
namespace fs = std::filesystem;

namespace {

std::string lines_of_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += "line " + std::to_string(i * 7919 % 1000) + " of a small text\n";
  return text;
}

std::string documents(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += "{\"text\": \"document " + std::to_string(i * 7919 % 1000) + "\"}\n";
  return lines;
}

struct PreparedSources {
  DatasetInfo info;
  std::string shards;  // the bytes of both splits
  std::vector<std::string> messages;
  std::string text;  // '|' for the end-of-text token; of the tokenizer `bytes`
};

PreparedSources prepared_sources(const DataFolder& dir, std::vector<std::string> inputs, PrepareOptions o = {}) {
  PreparedSources p;
  o.inputs = std::move(inputs);
  o.out = dir / "out";
  o.overwrite = true;
  o.message = [&](const std::string& m) { p.messages.push_back(m); };
  p.info = prepare(o).info;
  for (const char* name : {"train-000000.bin", "val-000000.bin"}) {
    std::string shard = read_file(dir / "out" / name);
    p.shards += shard;
    for (size_t i = ShardHeader::bytes; i + 1 < shard.size(); i += 2) p.text += shard[i + 1] ? '|' : shard[i];
  }
  return p;
}

// With `text` on standard input.
PreparedSources prepared_input(const DataFolder& dir, const std::string& text, PrepareOptions o = {}) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  std::thread writer([&] {
    for (size_t i = 0; i < text.size();) {
      ssize_t n = ::write(ends[1], text.data() + i, text.size() - i);
      if (n <= 0) break;
      i += size_t(n);
    }
    ::close(ends[1]);
  });
  o.standard_input = ends[0];
  auto over = [&] {
    writer.join();
    ::close(ends[0]);
  };
  try {
    PreparedSources p = prepared_sources(dir, {"-"}, o);
    over();
    return p;
  } catch (...) {
    over();
    throw;
  }
}

}  // namespace

TEST(Sources, CompressedFilesAreTheirTexts) {
  DataFolder dir;
  for (std::string name : {"a.txt", "b.jsonl"}) {
    std::string text = name == "a.txt" ? lines_of_text(20000) : documents(3000);
    write_file(dir / name, text);
    for (std::string tokenizer : {"bytes", "bpe:300"}) {
      PrepareOptions o;
      o.tokenizer = tokenizer;
      o.block_bytes = 10000;
      PreparedSources plain = prepared_sources(dir, {(dir / name).string()}, o);
      for (auto& packer : packers) {
        SCOPED_TRACE(name + packer.suffix);
        fs::path packed = dir / (name + packer.suffix);
        // Two members.
        write_file(packed, packer.pack(text.substr(0, 1000)) + packer.pack(text.substr(1000)));
        PreparedSources p = prepared_sources(dir, {packed.string()}, o);
        EXPECT_TRUE(p.shards == plain.shards);
        EXPECT_EQ(p.info.text_bytes, plain.info.text_bytes);
        EXPECT_EQ(p.info.documents, plain.info.documents);
        EXPECT_EQ(p.info.sources[0].bytes, plain.info.sources[0].bytes) << "bytes of text";
        EXPECT_TRUE(p.messages.empty()) << p.messages[0];
      }
    }
  }
  // In a folder, and by another program's name.
  write_file(dir / "in/a.txt.zst", zstd_packed("first text, in zstd\n" + lines_of_text(50)));
  write_file(dir / "in/b.txt", gzipped("second text, in gzip\n" + lines_of_text(50)));
  EXPECT_EQ(prepared_sources(dir, {(dir / "in").string()}).text,
            "first text, in zstd\n" + lines_of_text(50) + "|second text, in gzip\n" + lines_of_text(50));
}

TEST(Sources, DamagedCompressedFilesAreNamedWithThePlaceAndLeaveNothing) {
  DataFolder dir;
  std::string text = lines_of_text(40000);
  for (auto& packer : packers) {
    std::string packed = packer.pack(text), cut = packed.substr(0, packed.size() - 9);
    write_file(dir / "cut", cut);
    EXPECT_ERROR(prepared_sources(dir, {(dir / "cut").string()}),
                 "cut: the file cannot be unpacked: it is truncated, it ends at byte " + std::to_string(cut.size()));
  }
  write_file(dir / "bomb.xz", xz_packed(std::string(size_t(1) << 20, '\n')));
  std::string many = read_file(dir / "bomb.xz");
  {
    std::ofstream bomb(dir / "bomb.xz", std::ios::binary);  // 1.1 GiB
    for (int i = 0; i < 1100; ++i) bomb << many;
  }
  EXPECT_ERROR(prepared_sources(dir, {(dir / "bomb.xz").string()}), "bomb.xz: the file unpacks to more than 1.00 GiB");
  EXPECT_FALSE(fs::exists(dir / "out"));
}

TEST(Sources, StandardInputIsReadByItsContent) {
  DataFolder dir;
  PrepareOptions as_text, as_lines;
  as_text.format = TextFormat::text, as_lines.format = TextFormat::json_lines;
  std::string lines = documents(300);
  write_file(dir / "a.jsonl", lines);
  PreparedSources file = prepared_sources(dir, {(dir / "a.jsonl").string()});
  for (auto& input : {lines, "\xef\xbb\xbf\r\n" + lines, gzipped(lines), zstd_packed(lines)}) {
    PreparedSources p = prepared_input(dir, input);
    EXPECT_EQ(p.text, file.text);
    EXPECT_EQ(p.info.documents, 300u);
    ASSERT_EQ(p.messages.size(), 1u);
    EXPECT_EQ(p.messages[0], "standard input is read as JSON lines (--format text reads it as text)");
  }
  EXPECT_EQ(prepared_input(dir, lines, as_text).text, lines);
  EXPECT_EQ(prepared_input(dir, lines, as_lines).text, file.text);
  for (auto& text :
       {lines_of_text(100), "{ this is not JSON }\n" + lines_of_text(100), "\"quoted\" text\n" + lines_of_text(100)}) {
    EXPECT_EQ(prepared_input(dir, text).text, text);
    EXPECT_EQ(prepared_input(dir, xz_packed(text)).text, text);
  }
  EXPECT_ERROR(prepared_input(dir, lines_of_text(10), as_lines), "-, line 1");
  EXPECT_ERROR(prepared_input(dir, "{\"body\": \"a\"}\n" + lines), "no key \"text\"");
  // --format applies to files, too. Without it, Crest refuses JSON in a file with another ending.
  std::string array = "[\n {\"text\": \"a\"}\n]\n" + lines_of_text(10);
  struct Case {
    const char* name;
    std::string content;
    std::vector<std::string> said;
  };
  for (auto& c : std::vector<Case>{
           {"lines.json", lines, {"looks like JSON lines", "mv ", "/lines.json ", "/lines.jsonl. ", "--format text"}},
           {"chat.json.gz", gzipped(lines), {"looks like JSON lines", "/chat.json.gz ", "/chat.jsonl.gz. "}},
           {"chat.txt", lines, {"looks like JSON lines", "/chat.txt ", "/chat.txt.jsonl. "}},
           {"array.json", array, {"looks like a JSON array", ": jq -c '.[]' ", "/array.json > data.jsonl"}},
           {"array.json.gz", gzipped(array), {"a JSON array", ": zcat ", "gz | jq -c '.[]' > data.jsonl"}}}) {
    SCOPED_TRACE(c.name);
    write_file(dir / c.name, c.content);
    std::string path = dir / c.name;
    std::string refused = error_of([&] { prepared_sources(dir, {path}); });
    for (auto& part : c.said) EXPECT_NE(refused.find(part), std::string::npos) << refused;
    EXPECT_EQ(prepared_sources(dir, {path}, as_text).text,
              c.content.starts_with("\x1f") ? (c.name[0] == 'a' ? array : lines) : c.content);
  }
  EXPECT_ERROR(prepared_input(dir, array), "jq -c '.[]' FILE > data.jsonl");
  EXPECT_EQ(prepared_sources(dir, {(dir / "lines.json").string()}, as_lines).text, file.text);
  // In a folder it is one file of many.
  fs::create_directory(dir / "folder");
  write_file(dir / "folder/lines.json", lines);
  EXPECT_EQ(prepared_sources(dir, {(dir / "folder").string()}).text, lines);
  write_file(dir / "a.ndjson", lines);
  EXPECT_EQ(prepared_sources(dir, {(dir / "a.ndjson").string()}).text, file.text);
}

TEST(Sources, AByteOrderMarkIsNotText) {
  DataFolder dir;
  std::string text = lines_of_text(100), mark = "\xef\xbb\xbf";
  write_file(dir / "a.txt", mark + text);
  write_file(dir / "b.txt.gz", gzipped(mark + text));
  for (const char* name : {"a.txt", "b.txt.gz"})
    for (size_t block : {1, 2, 1000}) {
      PrepareOptions o;
      o.block_bytes = block;
      PreparedSources p = prepared_sources(dir, {(dir / name).string()}, o);
      EXPECT_EQ(p.text, text) << name << block;
      EXPECT_EQ(p.info.text_bytes, text.size());
    }
}

TEST(Sources, WhatIsNotTextIsRefusedWithItsKindAndWhatToDo) {
  using namespace std::string_literals;
  DataFolder dir;
  std::string tar(512, '\0'), text = lines_of_text(5), wide, wide_big;
  tar.replace(257, 5, "ustar");
  for (char c : text) wide += c, wide += '\0', wide_big += '\0', wide_big += c;
  struct Case {
    const char* name;
    std::string content;
    std::vector<std::string> said;
  };
  const Case cases[] = {
      {"a.txt", "\xff\xfe" + wide, {"UTF-16 text, not UTF-8", "iconv -f UTF-16 -t UTF-8", "a.txt > utf8.txt"}},
      {"b.txt", wide, {"UTF-16LE text", "iconv -f UTF-16LE -t UTF-8"}},
      {"c.txt", wide_big, {"UTF-16BE text", "iconv -f UTF-16BE -t UTF-8"}},
      {"d.txt.gz", gzipped("\xfe\xff" + wide_big), {"UTF-16 text", "zcat ", "| iconv -f UTF-16 -t UTF-8 > utf8.txt"}},
      {"e.parquet", "PAR1\x15\x04\x15", {"a Parquet file, not a text file", "reads a whole file by its name"}},
      {"f.tar", tar, {"a tar archive", "tar -xf"}},
      {"g.tar.gz", gzipped(tar), {"a tar archive", "g.tar.gz -C texts"}},
      {"h.zip", "PK\x03\x04rest", {"a zip archive", "unzip"}},
      {"i.pdf", "%PDF-1.7\ntext", {"a PDF document", "pdftotext"}},
      {"i.txt", "version https://git-lfs.github.com/spec/v1\n", {"a pointer of Git LFS", "git lfs pull"}},
      {"j",
       "\x7f"
       "ELF\2\1\1\0"s,
       {"an executable program", "Give a text file"}},
      {"k.exe", "MZ\x90\0\3"s, {"an executable program or library of Windows"}},
      {"l.jsonl.bz2", "BZh91AY&SY1234", {"compressed with bzip2", "bzcat", "| crest data prepare - --format jsonl"}},
      {"l.ndjson.bz2", "BZh91AY&SY1234", {"compressed with bzip2", "| crest data prepare - --format jsonl"}},
      {"l's text.bz2", "BZh91AY&SY1234", {"compressed with bzip2", "l'\\''s text.bz2' | crest data prepare - --out"}},
      {"m.gz", gzipped(gzipped(text)), {"compressed twice", "zcat"}},
      {"n.png", "\x89PNG\r\n\x1a\n", {"a PNG image"}},
      {"o.bin", "\x88\xda\x34\x01\x01\0\0\0"s, {"a token shard of llm.c", "crest train --data"}},
      {"p.dat", "some\0text"s, {"binary data (it has NUL bytes)"}},
      {"q.dat", std::string(30, '\1') + "text", {"binary data (it has many control characters)"}},
      {"r.pkl", "\x80\x04\x95\x10", {"a Python pickle"}}};
  for (auto& c : cases) {
    SCOPED_TRACE(c.name);
    write_file(dir / c.name, c.content);
    std::string path = dir / c.name;
    std::string by_name = error_of([&] { prepared_sources(dir, {path}); });
    for (auto& part : c.said) EXPECT_NE(by_name.find(part), std::string::npos) << by_name;
    EXPECT_EQ(by_name.find(path + ": this looks like "), 0u) << by_name;
    // The same from standard input, but for the name.
    EXPECT_ERROR(prepared_input(dir, c.content), c.said[0]);
  }
  EXPECT_FALSE(fs::exists(dir / "out"));
  // Inputs without text, in several forms.
  write_file(dir / "mark.txt", "\xef\xbb\xbf");
  write_file(dir / "blank.jsonl", "\n \n\n");
  write_file(dir / "empty.txt.gz", gzipped(""));
  for (const char* name : {"mark.txt", "blank.jsonl", "empty.txt.gz"})
    EXPECT_ERROR(prepared_sources(dir, {dir / name}), std::string(name) + ": the input contains no text");
  for (auto& text : {std::string(), gzipped(""), std::string("\xef\xbb\xbf")})
    EXPECT_ERROR(prepared_input(dir, text), "-: the input contains no text");
  // A folder with only such files is an error with the reason.
  write_file(dir / "tables/part-0.parquet", "PAR1\x15\x04\x15");
  EXPECT_ERROR(prepared_sources(dir, {dir / "tables"}),
               "part-0.parquet looks like a Parquet file, not a text file. crest data prepare FILE.parquet");
  // In a folder with other files, Crest skips them and names them.
  for (auto& c : cases) write_file(dir / "in" / c.name, c.content);
  write_file(dir / "in/a.txt", text);
  PreparedSources p = prepared_sources(dir, {(dir / "in").string()});
  EXPECT_EQ(p.text, text);
  EXPECT_EQ(p.messages.size(), std::size(cases) - 1);
  for (auto& m : p.messages) EXPECT_NE(m.find(": it looks like "), std::string::npos) << m;
}

TEST(Sources, TextThatBeginsLikeSomethingElseIsText) {
  for (std::string_view text :
       {"MZ is a country code", "PK\nis a word", "ID3 tags", "GIF8 bit art", "RIFF raff", "PAR1 is a par",
        "BZhang wrote", "\x1b[1mbold\x1b[0m", "a\fb\x08", "GGUF?", "\xe9t\xe9 en Latin-1", "", "x", "\xef\xbb\xbftext"})
    EXPECT_FALSE(not_text(text, Compression::none, "x")) << text;
}

// No piece begins with a mark of the character before it.
TEST(Sources, CombiningMarksStayWithTheirCharacter) {
  DataFolder dir;
  const std::string characters[] = {"e\xcc\x81", "a\xcc\xa3\xcc\x88", "\xe0\xa4\x95\xe0\xa5\x8d", "x"};
  std::string text;
  for (uint64_t i = 0; text.size() < 40000; ++i) text += characters[i * 7 % 4];
  write_file(dir / "in.txt", text);
  auto starts_with_mark = [](std::string_view piece) {
    return piece.starts_with("\xcc") || piece.starts_with("\xe0\xa5\x8d");
  };
  for (size_t block : {64, 65, 66, 67, 501})
    for (uint64_t boundary : {20000, 20001, 20002, 20003, 20004, 20005, 20006}) {
      auto sources = list_sources({dir / "in.txt"}, {}, 0, {});
      std::string all;
      CorpusOptions options;
      options.block_bytes = block, options.boundary = boundary;
      read_corpus(sources, options, [&](const CorpusPiece& p) {
        EXPECT_FALSE(starts_with_mark(p.text)) << block << " " << boundary;
        all += p.text;
      });
      EXPECT_TRUE(all == text);
    }
}

TEST(Sources, ATokenizerWithoutEndOfTextWarnsBeforeItJoinsDocuments) {
  DataFolder dir;
  std::string json = Tokenizer::bytes().to_json();
  for (size_t at; (at = json.find("<|endoftext|>")) != std::string::npos;) json.replace(at, 13, "<|other|>");
  write_file(dir / "none.json", json);
  write_file(dir / "a.txt", lines_of_text(50));
  write_file(dir / "b.txt", lines_of_text(60));
  PrepareOptions o;
  o.tokenizer = dir / "none.json";
  auto warnings = [&](std::vector<std::string> inputs) {
    auto messages = prepared_sources(dir, std::move(inputs), o).messages;
    return std::count_if(messages.begin(), messages.end(), [](auto& m) {
      return m.starts_with("warning: ") && m.find("no end-of-text token") != std::string::npos;
    });
  };
  EXPECT_EQ(warnings({dir / "a.txt"}), 0);
  EXPECT_EQ(warnings({dir / "a.txt", dir / "b.txt"}), 1);
  write_file(dir / "c.jsonl", documents(100));
  EXPECT_EQ(warnings({dir / "c.jsonl"}), 1);
}

TEST(Sources, TheSizeOfACompressedTextIsThatOfTheText) {
  DataFolder dir;
  std::string text = lines_of_text(3000);
  write_file(dir / "a.txt", text);
  write_file(dir / "a.txt.gz", gzipped(text));
  for (const char* name : {"a.txt", "a.txt.gz"}) {
    EXPECT_EQ(text_size(dir / name, 1 << 30), text.size());
    EXPECT_EQ(text_size(dir / name, 5000), 5000u);
  }
}
