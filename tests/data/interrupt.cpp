// Ctrl-C while text is prepared: it ends at the next block, shard, file or merge, and leaves
// nothing.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "data/bpe_train.h"
#include "data/helpers.h"
#include "data/prepare.h"
#include "data/prepare_text.h"
#include "data/split_rule.h"
#include "host/stop_signal.h"

using namespace crest;
using namespace crest::test;
namespace fs = std::filesystem;

namespace {

std::string many_words(size_t n) {
  std::string text;
  for (size_t i = 0; text.size() < n; ++i) text += "word" + std::to_string(i * 7919 % 997) + " ";
  return text;
}

// The message of the action's exception. It must be the error of Ctrl-C.
template <class Action>
std::string interrupted(Action&& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(int(e.code()), int(Exit::interrupted)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "not interrupted";
  return "";
}

PrepareOptions interrupt_options(const std::string& input, const fs::path& out) {
  PrepareOptions o;
  o.inputs = {input};
  o.out = out;
  return o;
}

int renames = 0;

// The user's cache, in the folder of a test.
class CacheIn {
 public:
  explicit CacheIn(const std::string& folder) {
    if (const char* set = std::getenv("CREST_CACHE")) before_ = set;
    setenv("CREST_CACHE", folder.c_str(), 1);
  }
  ~CacheIn() { before_ ? setenv("CREST_CACHE", before_->c_str(), 1) : unsetenv("CREST_CACHE"); }

 private:
  std::optional<std::string> before_;
};

}  // namespace

TEST(Interrupted, BetweenTheShardsOfABlock) {
  DataFolder dir;
  write_file(dir / "in.txt", many_words(4000));  // one block
  Syscalls table = real_syscalls;
  renames = 0;
  table.renameat = [](int from_folder, const char* from, int to_folder, const char* to) {
    if (++renames == 3) std::raise(SIGINT);
    return real_syscalls.renameat(from_folder, from, to_folder, to);
  };
  auto o = interrupt_options(dir / "in.txt", dir / "out");
  o.shard_tokens = 10;
  {
    StopSignal signal;
    ScopedSyscalls scope(&table);
    EXPECT_NE(interrupted([&] { prepare(o); }).find("No files were left behind."), std::string::npos);
  }
  EXPECT_EQ(renames, 3);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 1);  // in.txt
}

// A silent terminal or program, and a pipe without a writer.
TEST(Interrupted, WhileItWaitsForInput) {
  DataFolder dir;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  StopSignal signal;
  std::raise(SIGTERM);
  auto o = interrupt_options("-", dir / "out");
  o.standard_input = ends[0];
  interrupted([&] { prepare(o); });
  interrupted([&] { prepare(interrupt_options(dir / "fifo", dir / "out")); });
  ::close(ends[0]), ::close(ends[1]);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 1);  // fifo
}

TEST(Interrupted, WhileTheCachesKeyIsMade) {
  DataFolder dir;
  write_file(dir / "in.txt", many_words(4000));
  auto sources = list_sources({dir / "in.txt"}, {}, 0, {});
  StopSignal signal;
  std::raise(SIGINT);
  interrupted([&] { hash_contents(sources); });
  interrupted([&] { list_sources({dir.path().string()}, {}, 0, {}); });
}

TEST(Interrupted, BetweenMerges) {
  BpeTrainer trainer(5000, gpt2_split_rule());
  trainer.add(many_words(20000));
  StopSignal signal;
  std::raise(SIGINT);
  interrupted([&] { trainer.train(); });
}

// crest train TEXT: it has its own guard, and nothing stays in the cache.
TEST(Interrupted, TextForTrainingLeavesNothingInTheCache) {
  DataFolder dir;
  CacheIn cache(dir / "cache");
  write_file(dir / "in.txt", many_words(4000));
  auto stop_at = [&](const std::string& stage) {
    PreparationShown shown;
    shown.message = [](const std::string&) {};
    shown.progress = [&](const PrepareProgress& p) {
      if (p.stage == stage) std::raise(SIGINT);
    };
    interrupted([&] { prepare_text({dir / "in.txt"}, {.tokenizer = "bpe:300"}, shown); });
    EXPECT_FALSE(StopSignal::guarded());
  };
  stop_at("reading");
  stop_at("counting words");
  EXPECT_TRUE(!fs::exists(dir / "cache") || fs::is_empty(dir / "cache"));
}

// Reading keeps every shard open, so Crest refuses to make more shards than a process may open.
TEST(ShardWriter, MoreShardsThanFilesThatMayBeOpenAreRefused) {
  DataFolder dir;
  write_file(dir / "in.txt", many_words(4000));
  auto o = interrupt_options(dir / "in.txt", dir / "out");
  o.shard_tokens = 10;
  rlimit before{}, few{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  few = before;
  few.rlim_cur = 128;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::string said = error_of([&] { prepare(o); });
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(said.find("more than 32 shards of 10 tokens"), std::string::npos) << said;
  EXPECT_NE(said.find("--shard-tokens"), std::string::npos) << said;
}

// All files of a folder count for the choice between bytes and a trained vocabulary.
TEST(PrepareText, AFolderHasTheTokenizerOfItsTextAsOneFile) {
  DataFolder dir;
  CacheIn cache(dir / "cache");
  PreparationShown silent{{}, [](const std::string&) {}};
  for (int i = 0; i < 4; ++i) write_file(dir / ("texts/" + std::to_string(i) + ".txt"), many_words(80 << 10));
  write_file(dir / "short/a.txt", many_words(8 << 10));
  EXPECT_EQ(prepare_text({(dir / "texts").string()}, {}, silent).tokenizer, "bpe:2048");
  EXPECT_EQ(prepare_text({(dir / "texts/0.txt").string()}, {}, silent).tokenizer, "bytes");
  EXPECT_EQ(prepare_text({(dir / "short").string()}, {}, silent).tokenizer, "bytes");
}
