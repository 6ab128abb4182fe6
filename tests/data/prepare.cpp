#include "data/prepare.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "core/folder.h"
#include "core/random.h"
#include "data/bpe_train.h"
#include "data/corpus.h"
#include "data/helpers.h"
#include "data/loader.h"

using namespace crest;
using namespace crest::test;
namespace fs = std::filesystem;

static std::string many_sentences(size_t n, uint64_t seed = 1) {
  static const char* words[] = {"the", "cat",    "sat", "on",   "a",     "mat,", "isn't",
                                "it?", "Zürich", "42",  "日本", "and\n", "so"};
  std::string s;
  for (uint64_t i = 0; s.size() < n; ++i) s += std::string(words[random_bits(seed, 0, i) % 13]) + " ";
  return s;
}

static PrepareOptions options_for(std::vector<std::string> inputs, const fs::path& out,
                                  const std::string& tokenizer = "bytes") {
  PrepareOptions o;
  o.inputs = std::move(inputs);
  o.out = out;
  o.tokenizer = tokenizer;
  return o;
}

static std::string text_of(const Dataset& d, const TokenStream& s) {
  std::vector<int32_t> tokens(s.total_tokens());
  s.read(0, tokens.size(), tokens.data());
  return d.tokenizer()->decode(std::vector<uint32_t>(tokens.begin(), tokens.end()));
}

TEST(Prepare, OneFileSplitsIntoTrainingAndHeldOutTextWithoutOverlap) {
  DataFolder dir;
  std::string text = many_sentences(100000);
  write_file(dir / "in.txt", text);
  for (std::string tokenizer : {"bytes", "bpe:280"}) {
    auto o = options_for({dir / "in.txt"}, dir / ("out-" + tokenizer.substr(0, 3)), tokenizer);
    auto result = prepare(o);
    Dataset d = Dataset::open(o.out);
    std::string train = text_of(d, d.train()), val = text_of(d, d.val());
    EXPECT_EQ(train + val, text);
    EXPECT_NEAR(double(val.size()), 10000, 100);
    EXPECT_EQ(result.info.text_bytes, text.size());
    EXPECT_EQ(d.info().train_text.bytes, train.size());
    EXPECT_EQ(d.val().text().bytes, val.size());
    EXPECT_EQ(d.info().documents, 1u);
    EXPECT_EQ(d.info().train_tokens, d.train().total_tokens());
    EXPECT_EQ(d.info().sources[0].bytes, text.size());
    EXPECT_EQ(d.vocab_size(), tokenizer == "bytes" ? 257u : 280u);
    EXPECT_EQ(d.info().tokenizer, tokenizer.substr(0, tokenizer.find(':')));
    EXPECT_EQ(d.info().created_by, "crest " CREST_VERSION);
    EXPECT_EQ(d.info().format, "llm.c");
    std::set<std::string> names;
    for (auto& e : fs::directory_iterator(o.out)) names.insert(e.path().filename());
    EXPECT_EQ(names, (std::set<std::string>{"train-000000.bin", "val-000000.bin", "tokenizer.json",
                                            "tokenizer_config.json", "meta.json"}));
  }
}

TEST(Prepare, BlocksDoNotChangeTheTokens) {
  DataFolder dir;
  std::string text = many_sentences(60000) + std::string(5000, 'x') + many_sentences(20000, 2) + "|END|\r\n" +
                     many_sentences(9000, 3) + "|END|" + "|END|\n" + many_sentences(5000, 4);
  write_file(dir / "in.txt", text);
  std::string first;
  for (size_t block : {size_t(4) << 20, size_t(1000), size_t(997), size_t(4096)}) {
    auto o = options_for({dir / "in.txt"}, dir / "out", "bpe:500");
    o.block_bytes = block;
    o.separator = "|END|";
    o.overwrite = true;
    prepare(o);
    std::string all = read_file(dir / "out" / "train-000000.bin") + read_file(dir / "out" / "val-000000.bin") +
                      read_file(dir / "out" / "tokenizer.json");
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << block;
  }
  Dataset d = Dataset::open(dir / "out");
  EXPECT_EQ(d.info().documents, 3u);  // nothing between two separators is no document
  std::string eot = "<|endoftext|>";
  EXPECT_EQ(text_of(d, d.train()) + text_of(d, d.val()), many_sentences(60000) + std::string(5000, 'x') +
                                                             many_sentences(20000, 2) + eot + many_sentences(9000, 3) +
                                                             eot + many_sentences(5000, 4));
}

TEST(Prepare, ATextWithoutSpacesStaysWithinMemoryAndWhole) {
  DataFolder dir;
  std::string text;
  while (text.size() < 60000) text += "日本語";
  write_file(dir / "in.txt", text);
  auto o = options_for({dir / "in.txt"}, dir / "out", "bpe:300");
  o.block_bytes = 512;
  prepare(o);
  Dataset d = Dataset::open(dir / "out");
  std::string val = text_of(d, d.val());
  EXPECT_EQ(text_of(d, d.train()) + val, text);
  EXPECT_NEAR(double(val.size()), 6000, 3);
  EXPECT_EQ(uint8_t(val[0]) & 0xc0, 0xc0);  // not inside a character
}

// The bound of docs/reference/reliability.md, with smaller blocks. It was 50 to 64 bytes a byte.
TEST(Prepare, TextWithoutSpacesTakesLittleMemory) {
  auto kib = [](const std::string& key) {  // of /proc/self/status
    std::string status = read_file("/proc/self/status");
    size_t at = status.find(key + ":");
    return at == std::string::npos ? 0 : std::stoull(status.substr(at + key.size() + 1));
  };
  std::ofstream("/proc/self/clear_refs") << 5;  // VmHWM becomes VmRSS
  if (kib("VmHWM") > kib("VmRSS") + 4096) GTEST_SKIP() << "the peak of this process cannot be reset";
  std::string acids(1'200'000, 'A');
  for (size_t i = 0; i < acids.size(); ++i) acids[i] = "ACGT"[random_bits(1, 0, i) & 3];
  for (const std::string& text : {std::string(2'000'000, 'a'), acids}) {
    DataFolder dir;
    write_file(dir / "in.txt", text);
    auto o = options_for({dir / "in.txt"}, dir / "out", "bpe:300");
    o.block_bytes = 1 << 20;
    std::ofstream("/proc/self/clear_refs") << 5;
    const auto before = kib("VmRSS");
    prepare(o);
    EXPECT_LT((kib("VmHWM") - before) << 10, 10 * text.size() + (32 << 20));
  }
#ifndef __SANITIZE_ADDRESS__
  // Chinese phrases need memory in proportion to the text, mostly for symbols and places of pairs.
  std::string phrases;
  for (uint64_t i = 0; phrases.size() < 1'500'000; ++i) {
    const uint64_t r = mix(i), character = (r & 0xfff) * (r >> 12 & 0xfff) >> 12;
    phrases += {char(0xe4), char(0x80 | character >> 6), char(0x80 | (character & 0x3f))};
    if ((r >> 40) % 14 == 0) phrases += '\n';
  }
  std::ofstream("/proc/self/clear_refs") << 5;
  const auto before = kib("VmRSS");
  BpeTrainer trainer(300);
  trainer.add(phrases);
  trainer.train();
  EXPECT_LT((kib("VmHWM") - before) << 10, 9 * phrases.size());
#endif
}

TEST(Prepare, FoldersAreReadInOrderAndOnlyText) {
  DataFolder dir;
  write_file(dir / "in/b.txt", "second " + many_sentences(2000));
  write_file(dir / "in/a/z.md", "first " + many_sentences(2000));
  write_file(dir / "in/c.py", "third " + many_sentences(2000));
  write_file(dir / "in/picture.png", std::string("\x89PNG\0\0", 6));
  write_file(dir / "in/.hidden.txt", "hidden");
  write_file(dir / "in/.git/x.txt", "hidden");
  write_file(dir / "in/empty.txt", "");
  auto o = options_for({dir / "in"}, dir / "in/prepared");
  std::vector<std::string> messages;
  o.message = [&](const std::string& m) { messages.push_back(m); };
  prepare(o);
  Dataset d = Dataset::open(o.out);
  EXPECT_EQ(d.info().documents, 3u);
  std::string text = text_of(d, d.train()) + text_of(d, d.val());
  EXPECT_EQ(text, "first " + many_sentences(2000) + "<|endoftext|>second " + many_sentences(2000) +
                      "<|endoftext|>third " + many_sentences(2000));
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_NE(messages[0].find("picture.png"), std::string::npos);
  // Prepared data inside the input folder is no input of the next preparation.
  o.overwrite = true;
  prepare(o);
  Dataset again = Dataset::open(o.out);
  EXPECT_EQ(text_of(again, again.train()) + text_of(again, again.val()), text);
}

TEST(Prepare, StandardInputAndPipesAreSpooled) {
  DataFolder dir;
  std::string text = many_sentences(300000);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread writer([&] {
    for (size_t i = 0; i < text.size();)
      i += size_t(::write(ends[1], text.data() + i, std::min<size_t>(5000, text.size() - i)));
    ::close(ends[1]);
  });
  auto o = options_for({"-"}, dir / "out", "bpe:300");
  o.standard_input = ends[0];
  prepare(o);
  writer.join();
  ::close(ends[0]);
  Dataset d = Dataset::open(dir / "out");
  EXPECT_EQ(text_of(d, d.train()) + text_of(d, d.val()), text);
  EXPECT_EQ(d.info().sources[0].path, "-");
  EXPECT_FALSE(fs::exists(dir / "out/spool-0"));

  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  std::thread fifo_writer([&] { std::ofstream(dir / "pipe") << text; });
  prepare(options_for({dir / "pipe"}, dir / "out2"));
  fifo_writer.join();
  EXPECT_EQ(Dataset::open(dir / "out2").info().text_bytes, text.size());
}

TEST(Prepare, ShardLimitAndNoValidation) {
  DataFolder dir;
  write_file(dir / "in.txt", many_sentences(10000));
  auto o = options_for({dir / "in.txt"}, dir / "out");
  o.shard_tokens = 3000;
  o.val_fraction = 0;
  auto result = prepare(o);
  EXPECT_EQ(result.info.train_shards, 4u);
  EXPECT_EQ(result.info.val_tokens, 0u);
  Dataset d = Dataset::open(dir / "out");
  EXPECT_EQ(text_of(d, d.train()), many_sentences(10000));
  o.out = dir / "half";
  o.val_fraction = 0.5;
  EXPECT_NEAR(double(prepare(o).info.val_tokens), 5000, 50);
}

TEST(Prepare, SmallTextsHoldOutOneWindow) {
  DataFolder dir;
  write_file(dir / "in.txt", many_sentences(2000));
  auto o = options_for({dir / "in.txt"}, dir / "out");
  auto info = prepare(o).info;
  EXPECT_GE(info.val_tokens, 240u);  // a tenth would be 200
  EXPECT_LE(info.val_tokens, 258u);
}

TEST(Prepare, TokenizerFileIsUsedAndKept) {
  DataFolder dir;
  write_file(dir / "in.txt", many_sentences(20000));
  prepare(options_for({dir / "in.txt"}, dir / "a", "bpe:333"));
  prepare(options_for({dir / "in.txt"}, dir / "b", (dir / "a/tokenizer.json").string()));
  EXPECT_EQ(read_file(dir / "a/tokenizer.json"), read_file(dir / "b/tokenizer.json"));
  EXPECT_EQ(read_file(dir / "a/train-000000.bin"), read_file(dir / "b/train-000000.bin"));
}

TEST(Prepare, ErrorsSayWhatIsWrongAndLeaveNothing) {
  DataFolder dir;
  write_file(dir / "good.txt", many_sentences(5000));
  write_file(dir / "empty.txt", "");
  write_file(dir / "short.txt", "a");
  write_file(dir / "packed.gz", std::string("\x1f\x8b\x08\0", 4));
  fs::create_directory(dir / "nothing");
  auto attempt = [&](std::vector<std::string> inputs, const std::string& tokenizer = "bytes") {
    prepare(options_for(std::move(inputs), dir / "out", tokenizer));
  };
  EXPECT_ERROR(attempt({}), "no input");
  EXPECT_ERROR(attempt({dir / "absent.txt"}), "absent.txt: no such file or folder");
  EXPECT_ERROR(attempt({dir / "good.txt", dir / "absent.txt"}), "no such file");
  EXPECT_ERROR(attempt({dir / "empty.txt"}), "no text");
  EXPECT_ERROR(attempt({dir / "nothing"}), "no text");
  EXPECT_ERROR(attempt({dir / "short.txt"}), "both parts need at least 2 tokens");
  PrepareOptions unsplit = options_for({dir / "short.txt"}, dir / "out", "bytes");
  unsplit.val_fraction = 0;
  EXPECT_ERROR(prepare(unsplit),
               "too short: it gives 1 training token\n  Give more text: training needs at least 2 tokens");
  EXPECT_ERROR(attempt({dir / "packed.gz"}),
               "packed.gz: the file cannot be unpacked: it is truncated, it ends at byte 4");
  EXPECT_ERROR(attempt({dir / "good.txt"}, "bpe"), "bpe:4096");
  EXPECT_ERROR(attempt({dir / "good.txt"}, "byte"), "Did you mean 'bytes'");
  EXPECT_ERROR(attempt({dir / "good.txt"}, "bpe:12x"), "not a vocabulary size");
  EXPECT_ERROR(attempt({dir / "good.txt"}, "bpe:100"), "100 tokens is not possible");
  EXPECT_ERROR(attempt({dir / "good.txt"}, (dir / "good.txt").string()), "unknown tokenizer format");
  if (::geteuid() != 0) {
    fs::permissions(dir / "good.txt", fs::perms::none);
    EXPECT_ERROR(attempt({dir / "good.txt"}), "Permission denied");
    fs::permissions(dir / "good.txt", fs::perms::owner_all);
  }
  auto canceled = options_for({dir / "good.txt"}, dir / "out");
  canceled.progress = [](const PrepareProgress&) { fail("canceled"); };
  EXPECT_ERROR(prepare(canceled), "canceled");
  auto all = options_for({dir / "good.txt"}, dir / "out");
  all.val_fraction = 1;
  EXPECT_ERROR(prepare(all), "--val-fraction");
  std::set<std::string> names;
  for (auto& e : fs::directory_iterator(dir.path())) names.insert(e.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"good.txt", "empty.txt", "short.txt", "packed.gz", "nothing"}));

  attempt({dir / "good.txt"});
  EXPECT_ERROR(attempt({dir / "good.txt"}), "the output folder exists");
  auto o = options_for({dir / "good.txt"}, dir / "precious");
  write_file(dir / "precious/thesis.txt", "years");
  o.overwrite = true;
  EXPECT_ERROR(prepare(o), "this folder has no meta.json");
  EXPECT_TRUE(fs::exists(dir / "precious/thesis.txt"));
}

// --overwrite replaces only folders of prepare: no folder with just a meta.json, none with other
// files, none with an input.
TEST(Prepare, OverwriteRemovesNothingThatPrepareDidNotWrite) {
  DataFolder dir;
  const std::string text = many_sentences(5000);
  write_file(dir / "in.txt", text);
  auto over = [&](const std::string& input, const std::string& out, const std::string& tokenizer = "bytes") {
    auto o = options_for({input}, dir / out, tokenizer);
    o.overwrite = true;
    prepare(o);
  };
  write_file(dir / "corpus/meta.json", "{}");
  write_file(dir / "corpus/text.txt", text);
  EXPECT_ERROR(over(dir / "in.txt", "corpus"), "the meta.json of this folder was not written by crest data prepare");
  EXPECT_ERROR(over(dir / "corpus", "corpus"), "was not written by crest data prepare");
  EXPECT_EQ(read_file(dir / "corpus/text.txt"), text);

  over(dir / "in.txt", "data");
  over(dir / "in.txt", "data");
  const std::string meta = read_file(dir / "data/meta.json");
  for (const char* foreign : {"notes.txt", "train-a.bin", "sub/train-000000.bin"}) {
    write_file(dir / "data" / foreign, text);
    EXPECT_ERROR(over(dir / "in.txt", "data"), "which crest data prepare did not write");
    EXPECT_EQ(read_file(dir / "data" / foreign), text);
    fs::remove_all(dir / "data" / fs::path(foreign).begin()->string());
  }
  fs::create_symlink(dir / "in.txt", dir / "data/val-000001.bin");
  EXPECT_ERROR(over(dir / "in.txt", "data"), "val-000001.bin");
  fs::remove(dir / "data/val-000001.bin");

  EXPECT_ERROR(over(dir / "data/meta.json", "data"), "would remove an input of this command");
  EXPECT_ERROR(over(dir / "data", "data"), "would remove an input of this command");
  EXPECT_ERROR(over(dir / "in.txt", "data", (dir / "data/tokenizer.json").string()), "would remove an input");
  fs::create_directory(dir / "links");
  fs::create_symlink(dir / "data/meta.json", dir / "links/a.txt");
  EXPECT_ERROR(over(dir / "links", "data"), "would remove an input of this command");
  EXPECT_EQ(read_file(dir / "data/meta.json"), meta);
}

// A file added while the text is encoded.
TEST(Prepare, OverwriteLooksAgainBeforeItReplaces) {
  DataFolder dir;
  write_file(dir / "in.txt", many_sentences(5000));
  auto o = options_for({dir / "in.txt"}, dir / "data");
  prepare(o);
  o.overwrite = true;
  o.progress = [&](const PrepareProgress& p) {
    if (p.stage == std::string("encoding")) write_file(dir / "data/notes.txt", "years");
  };
  EXPECT_ERROR(prepare(o), "notes.txt");
  EXPECT_EQ(read_file(dir / "data/notes.txt"), "years");
}

TEST(Prepare, ASymbolicLinkIsFollowedAndStays) {
  DataFolder dir;
  write_file(dir / "in.txt", many_sentences(5000));
  fs::create_directory(dir / "disk");
  fs::create_directory_symlink("disk/real", dir / "link");
  auto o = options_for({dir / "in.txt"}, dir / "link");
  prepare(o);  // to where the link leads
  const uint64_t before = Dataset::open(dir / "disk/real").info().train_tokens;
  write_file(dir / "in.txt", many_sentences(9000));
  EXPECT_ERROR(prepare(o), "the output folder exists");
  o.overwrite = true;
  prepare(o);
  EXPECT_TRUE(fs::is_symlink(dir / "link"));
  EXPECT_GT(Dataset::open(dir / "disk/real").info().train_tokens, before);
  EXPECT_FALSE(fs::is_empty(dir / "disk/real"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "disk"), {}), 1);  // nothing is left next to it
}

TEST(Prepare, AFullDiskIsAnErrorThatNamesIt) {
  // /dev/full answers every write with ENOSPC.
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  File full = File::create("/dev/full");
  EXPECT_ERROR(full.write("x", 1), "No space left");
}

TEST(Prepare, CacheIsReusedUntilSomethingChanges) {
  DataFolder dir;
  write_file(dir / "in.txt", many_sentences(5000));
  auto first = prepare_cached(dir / "in.txt", dir / "cache", "bytes");
  EXPECT_FALSE(first.reused);
  auto second = prepare_cached(dir / "in.txt", dir / "cache", "bytes");
  EXPECT_TRUE(second.reused);
  EXPECT_EQ(second.folder, first.folder);
  EXPECT_EQ(second.info.train_tokens, first.info.train_tokens);
  EXPECT_NE(prepare_cached(dir / "in.txt", dir / "cache", "bpe:300").folder, first.folder);
  // Damaged cached data is made again.
  fs::resize_file(first.folder / "train-000000.bin", 1500);
  auto third = prepare_cached(dir / "in.txt", dir / "cache", "bytes");
  EXPECT_FALSE(third.reused);
  EXPECT_EQ(Dataset::open(third.folder).info().train_tokens, first.info.train_tokens);
  fs::remove(first.folder / "meta.json");
  EXPECT_FALSE(prepare_cached(dir / "in.txt", dir / "cache", "bytes").reused);
  write_file(dir / "in.txt", many_sentences(5000) + "more");
  auto fourth = prepare_cached(dir / "in.txt", dir / "cache", "bytes");
  EXPECT_FALSE(fourth.reused);
  EXPECT_NE(fourth.folder, first.folder);
  PrepareOptions o;
  o.inputs = {"-"};
  // Standard input may be closed where tests run.
  int input = ::dup(0), null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, 0);
  EXPECT_ERROR(prepare_cached(o, dir / "cache"), "read only once");
  if (input >= 0)
    ::dup2(input, 0), ::close(input);
  else
    ::close(0);
  if (null != 0) ::close(null);
}

// Only content counts: another text of the same size and time is prepared, the same text with
// another time is not.
TEST(Prepare, CacheIsKeyedByTheContent) {
  TemporaryFolder dir;
  std::string text = many_sentences(5000), other = text;
  other[2500] = other[2500] == 'x' ? 'y' : 'x';
  fs::path path = dir / "in.txt";
  write_file(path, text);
  auto time = fs::last_write_time(path);
  auto first = prepare_cached(path, dir / "cache", "bytes");
  write_file(path, other);
  fs::last_write_time(path, time);
  auto second = prepare_cached(path, dir / "cache", "bytes");
  EXPECT_FALSE(second.reused);
  Dataset d = Dataset::open(second.folder);
  EXPECT_EQ(text_of(d, d.train()) + text_of(d, d.val()), other);
  write_file(path, text);
  fs::last_write_time(path, time + std::chrono::hours(1));
  auto third = prepare_cached(path, dir / "cache", "bytes");
  EXPECT_TRUE(third.reused);
  EXPECT_EQ(third.folder, first.folder);
}

// The content changes between hashing and reading.
TEST(Corpus, ContentThatChangedSinceItWasHashedIsAnError) {
  TemporaryFolder dir;
  std::string text = many_sentences(3000);
  write_file(dir / "in.txt", text);
  auto sources = list_sources({dir / "in.txt"}, {}, 0, {});
  hash_contents(sources);
  auto read = [&] { read_corpus(sources, {}, [](const CorpusPiece&) {}); };
  read();
  sources[0].hash.clear();
  text[1500] ^= 1;
  write_file(dir / "in.txt", text);
  EXPECT_ERROR(read(), "changed between two readings");
}

// The name of a folder could hold a process number, but the process may be in another container. So
// locks show whether a folder is in use.
TEST(Prepare, FoldersThatNobodyHasLockedAreRemoved) {
  DataFolder dir;
  write_file(dir / "in.txt", many_sentences(5000));
  const std::string killed = dir / ".out.preparing-999999998", alive = dir / ".out.preparing-999999999";
  for (auto& folder : {killed, alive}) write_file(folder + "/train-000000.bin.tmp", "x");
  fs::create_symlink(dir / "elsewhere", dir / ".out.preparing-link");
  write_file(dir / "elsewhere/precious", "x");
  Folder other = Folder::open(alive);
  ASSERT_EQ(other.lock(), Folder::Lock::held);
  prepare(options_for({dir / "in.txt"}, dir / "out"));
  EXPECT_FALSE(fs::exists(killed));
  EXPECT_TRUE(fs::exists(alive + "/train-000000.bin.tmp"));
  EXPECT_TRUE(fs::exists(dir / "elsewhere/precious"));
}

TEST(Corpus, HeldOutBoundaryIsTheSameForEveryBlockSize) {
  DataFolder dir;
  std::string text = many_sentences(3000);
  write_file(dir / "in.txt", text);
  for (uint64_t boundary = 0; boundary <= 3000; boundary += 37) {
    std::string first;
    for (size_t block : {100, 333, 100000}) {
      auto sources = list_sources({dir / "in.txt"}, {}, 0, {});
      std::string train, val;
      read_corpus(sources, {"", block, boundary}, [&](const CorpusPiece& p) { (p.held_out ? val : train) += p.text; });
      ASSERT_EQ(train + val, text);
      ASSERT_GE(train.size(), boundary);
      if (first.empty()) first = train + "\n---\n";
      EXPECT_TRUE(train + "\n---\n" == first) << boundary << " " << block;
    }
  }
}

TEST(Dataset, PlainShardFoldersWorkWithoutMeta) {
  DataFolder dir;
  std::string raw;
  for (int i = 0; i < 500; ++i) raw += char(i % 200), raw += char(i % 7);
  write_file(dir / "nano/train.bin", raw);
  write_file(dir / "nano/val.bin", raw.substr(0, 100));
  Dataset d = Dataset::open(dir / "nano", 50257);
  EXPECT_EQ(d.info().format, "nanoGPT");
  EXPECT_EQ(d.train().total_tokens(), 500u);
  EXPECT_EQ(d.val().total_tokens(), 50u);
  EXPECT_EQ(d.vocab_size(), 50257u);
  EXPECT_EQ(d.tokenizer(), nullptr);
  Dataset small = Dataset::open(dir / "nano", 1000);
  std::vector<int32_t> out(500);
  EXPECT_ERROR(small.train().read(0, 500, out.data()), "outside the vocabulary of 1000");

  fs::create_directory(dir / "llmc");
  for (auto name : {"fineweb_train_000002", "fineweb_train_000001", "fineweb_val_000000"}) {
    ShardWriter w(dir / "llmc", name, 50257);
    w.append(std::vector<uint32_t>(10, uint32_t(name[15] == '2')));
    w.finish();
  }
  Dataset e = Dataset::open(dir / "llmc");
  EXPECT_EQ(e.info().train_shards, 2u);
  EXPECT_EQ(e.vocab_size(), 0u);
}

TEST(Dataset, DamagedFoldersAreErrors) {
  DataFolder dir;
  write_file(dir / "in.txt", many_sentences(5000));
  fs::path out = dir / "out";
  prepare(options_for({dir / "in.txt"}, out));
  EXPECT_ERROR(Dataset::open(dir / "absent"), "no such data folder");
  EXPECT_ERROR(Dataset::open(dir / "in.txt"), "not a folder");
  EXPECT_ERROR(Dataset::open(out, 300), "vocabulary of 257 tokens, but 300 was requested");
  fs::create_directory(dir / "empty");
  EXPECT_ERROR(Dataset::open(dir / "empty"), "no shards");
  std::string meta = read_file(out / "meta.json");
  for (size_t n = 0; n + 3 < meta.size(); n += 11) {
    write_file(out / "meta.json", meta.substr(0, n));
    EXPECT_ERROR(Dataset::open(out), "meta.json");
  }
  write_file(out / "meta.json", std::string(100000, '['));
  EXPECT_ERROR(Dataset::open(out), "meta.json");
  write_file(out / "meta.json", "{\"format\": 3}");
  EXPECT_ERROR(Dataset::open(out), "wrong type");
  write_file(out / "meta.json", meta);
  fs::rename(out / "val-000000.bin", dir / "val");
  EXPECT_ERROR(Dataset::open(out), "the shards hold");
  fs::rename(dir / "val", out / "val-000000.bin");
  fs::resize_file(out / "val-000000.bin", 1030);
  EXPECT_ERROR(Dataset::open(out), "cut short");
}
