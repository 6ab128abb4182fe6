// Bad input to crest train: one clear error, the exit code of the contract, and the remedy.
#include "cli/train_harness.h"

using namespace crest::test;

namespace {

struct Case {
  const char* name;
  std::vector<std::string> flags;  // after `crest train`; {run} means: tiny model and data, out, 4 steps
  int code;
  std::vector<std::string> said;
};

const std::vector<std::string> run = {"--data", "data", "--model", "tiny.toml", "--batch",   "2",
                                      "--out",  "out",  "--steps", "4",         "--threads", "1"};
std::vector<std::string> plan_with(std::vector<std::string> more) {
  more.insert(more.begin(), run.begin(), run.end());
  return more;
}

const std::vector<Case> cases = {
    {"FlagOfHuggingFace", {"--learning_rate", "1e-3"}, 2, {"unknown flag '--learning_rate'", "Crest's name is --lr."}},
    {"FlagWithAValueOfItsOwn", {"--bf16"}, 2, {"unknown flag '--bf16'", "Crest's name is --precision bf16."}},
    {"FlagWithANote",
     {"--per-device-train-batch-size=4"},
     2,
     {"Crest's name is --batch. It counts the sequences of a micro step on one rank."}},
    {"FlagOfNobody", {"--stepz", "1"}, 2, {"Did you mean '--steps'?"}},
    {"InitByAWellKnownName",
     {"--init", "gpt2", "--data", "data"},
     1,
     {"no such run or model", "hf download openai-community/gpt2 --local-dir gpt2. Then give gpt2."}},
    {"InitByARepository",
     {"--init", "Qwen/Qwen2.5-0.5B", "--data", "data"},
     1,
     {"no such run or model", "hf download Qwen/Qwen2.5-0.5B --local-dir Qwen2.5-0.5B. Then give Qwen2.5-0.5B."}},
    {"InitByAMissingRun", {"--init", "runs/none", "--data", "data"}, 1, {"no such run or model", "Give a run"}},
    {"NoData", {}, 2, {"no data", "crest train input.txt"}},
    {"MissingFile", {"nofile.txt"}, 1, {"nofile.txt", "no such file"}},
    {"EmptyFile", {"empty.txt"}, 1, {"empty.txt", "no text"}},
    {"OneByte", {"one.txt"}, 1, {"one.txt", "too short", "0 for validation", "both parts need at least 2 tokens"}},
    {"FolderWithoutText", {"emptydir"}, 1, {"emptydir", "no text"}},
    {"BinaryFile", {"binary.dat"}, 1, {"binary.dat", "not a text file", "executable"}},
    {"TextAndData", {"text.txt", "--data", "data"}, 2, {"both text files and --data were given"}},
    {"MissingData", {"--data", "nodata"}, 1, {"nodata", "crest data prepare"}},
    {"DataIsAFile", {"--data", "text.txt"}, 1, {"text.txt", "not a folder"}},
    {"DataWithoutShards", {"--data", "emptydir"}, 1, {"emptydir", "no shards"}},
    {"ShardCutShort",
     {"--data", "cut", "--model", "tiny.toml", "--out", "out"},
     1,
     {"cut/train-000000.bin", "cut short"}},
    {"ForeignShard", {"--data", "foreign", "--model", "tiny.toml", "--out", "out"}, 1, {"foreign/train-000000.bin"}},
    {"TokenBeyondVocabulary",
     {"--data", "beyond", "--model", "tiny.toml", "--vocab", "97", "--out", "out", "--steps", "100"},
     1,
     {"beyond/", "outside the vocabulary of 97"}},
    {"TokenBeyondVocabularyOnARank",
     {"--data", "beyondlater", "--model", "tiny.toml", "--out", "out", "--steps", "100", "--data-parallel", "2",
      "--batch", "1"},
     1,
     {"beyondlater/train-000000.bin", "outside the vocabulary of 257"}},
    {"VocabularyOfOtherData", plan_with({"--vocab", "100"}), 1, {"vocabulary of 257", "100"}},
    {"VocabularyBelowTheTokenizer",
     {"text.txt", "--model", "tiny.toml", "--vocab", "100", "--out", "out"},
     1,
     {"bytes: the tokenizer has 257 tokens, but --vocab is 100"}},
    {"SequenceBeyondContext", plan_with({"--seq", "33"}), 2, {"--seq", "33", "context of 32"}},
    {"DataShorterThanASequence", {"--data", "short", "--model", "nano", "--out", "out"}, 1, {"train", "256"}},
    {"HeadsThatDoNotDivide",
     {"--data", "data", "--model", "heads.toml"},
     2,
     {"heads.toml", "heads = 3", "width = 128"}},
    {"UnknownFlag", plan_with({"--stepz", "3"}), 2, {"--stepz", "Did you mean '--steps'"}},
    {"UnknownKey", {"--config", "key.toml"}, 2, {"key.toml", "stepz", "Did you mean 'steps'"}},
    {"KeyForTheCommandLineOnly", {"--config", "help.toml"}, 2, {"help.toml", "'help' works on the command line only"}},
    {"KeyThatNamesAFile", {"--config", "config.toml"}, 2, {"config.toml", "'config' works on the command line only"}},
    {"TokenizerForData", plan_with({"--tokenizer", "bytes"}), 2, {"--tokenizer", "given without text", "Leave it out"}},
    {"ChatTemplateForData", plan_with({"--chat-template", "nope"}), 2, {"--chat-template", "given without text"}},
    {"EmptyTokenizer", {"text.txt", "--tokenizer", ""}, 2, {"--tokenizer", "the value is empty", "TOKENIZER"}},
    {"EmptyStore", plan_with({"--store", ""}), 2, {"--store", "the value is empty", "FILE"}},
    {"UnknownKeyOfModel", {"--data", "data", "--model", "modelkey.toml"}, 2, {"modelkey.toml", "layerz", "layers"}},
    {"BadToml", {"--config", "bad.toml"}, 2, {"bad.toml", "line 2, column"}},
    {"ConfigMissing", {"--config", "noconfig.toml"}, 1, {"noconfig.toml"}},
    {"UnknownModel", {"--data", "data", "--model", "nanoo"}, 2, {"nanoo", "nano"}},
    {"DoesNotFit",
     {"--data", "data", "--memory-limit", "1MB", "--out", "out"},
     3,
     {"976.56 KiB", "weights", "optimizer_state", "activations", "smaller model"}},
    {"DoesNotFitButWould",
     {"--data", "data", "--precision", "fp32", "--threads", "2", "--memory-limit", "40MiB", "--out", "out"},
     3,
     {"What would fit:", "--recompute none --batch"}},
    {"Cuda", plan_with({"--device", "cuda"}), 4, {"--device cuda", "--device cpu"}},
    {"UnknownDevice", plan_with({"--device", "tpu"}), 2, {"--device", "tpu"}},
    {"Tf32OnCpu", plan_with({"--precision", "tf32"}), 2, {"--precision", "tf32"}},
    {"UnknownPrecision", plan_with({"--precision", "bf61"}), 2, {"--precision", "bf16"}},
    {"KernelWithoutPattern", plan_with({"--kernel", "nonsense"}), 2, {"OP=PATTERN"}},
    {"KernelOfNoOperation", plan_with({"--kernel", "nonsense=cpu.*"}), 2, {"nonsense"}},
    {"KernelOfNoName", plan_with({"--kernel", "attention=nonsense"}), 2, {"attention", "nonsense"}},
    {"UnknownPass", plan_with({"--disable-pass", "nonsense"}), 2, {"nonsense", "fusion"}},
    {"InitOfNothing", plan_with({"--init", "nodir"}), 1, {"nodir"}},
    {"ResumeOfNothing", {"--resume", "norun"}, 1, {"norun", "no such run"}},
    {"ResumeOfNoRun", {"--resume", "emptydir"}, 1, {"emptydir", "not a run folder"}},
    {"ResumeWithText", {"text.txt", "--resume", "done"}, 2, {"--resume"}},
    {"OutExists", {"text.txt", "--out", "done"}, 1, {"--out", "'done' exists", "--resume", "--overwrite"}},
    {"OverwriteForeign", {"text.txt", "--out", "data", "--overwrite"}, 1, {"'data' is not a run folder"}},
    {"OverwriteForeignConfig", {"text.txt", "--out", "project", "--overwrite"}, 1, {"'project' is not a run folder"}},
    {"OverwriteFile", {"text.txt", "--out", "text.txt", "--overwrite"}, 1, {"'text.txt' is not a run folder"}},
    {"ZeroSteps", plan_with({"--steps", "0"}), 2, {"--steps"}},
    {"NegativeSteps", plan_with({"--steps", "-3"}), 2, {"--steps", "-3"}},
    {"HugeSteps", plan_with({"--steps", "99999999999999999999999"}), 2, {"--steps"}},
    {"EmptyValue", plan_with({"--schedule=", "--keep", "3"}), 2, {"--schedule", "the value is empty", "cosine, wsd"}},
    {"StepsOfLetters", plan_with({"--steps", "many"}), 2, {"--steps"}},
    {"NanRate", plan_with({"--lr", "nan"}), 2, {"--lr", "nan"}},
    {"NegativeRate", plan_with({"--lr", "-1"}), 2, {"--lr", "-1"}},
    {"InfiniteRate", plan_with({"--lr", "inf"}), 2, {"--lr"}},
    {"RateBelowItsEnd", plan_with({"--lr", "1e-4", "--min-lr", "1e-3"}), 2, {"--min-lr"}},
    {"WarmupLongerThanTheRun", plan_with({"--warmup", "5"}), 2, {"--warmup", "5"}},
    {"UnknownSchedule", plan_with({"--schedule", "cosin"}), 2, {"Did you mean 'cosine'"}},
    {"ZeroBatch", plan_with({"--batch", "0"}), 2, {"--batch"}},
    {"HugeBatch", plan_with({"--batch", "9999999999999"}), 2, {"--batch"}},
    {"ZeroAccumulation", plan_with({"--grad-accumulation", "0"}), 2, {"--grad-accumulation"}},
    {"NoRanks", plan_with({"--data-parallel", "0"}), 2, {"--data-parallel"}},
    {"NegativeKeep", plan_with({"--keep", "-1"}), 2, {"--keep"}},
    {"NoValidationBatches", plan_with({"--val-batches", "0"}), 2, {"--val-batches"}},
    {"NegativeSeconds", plan_with({"--max-seconds", "-1"}), 2, {"--max-seconds"}},
    {"NegativeSeed", plan_with({"--seed", "-1"}), 2, {"--seed"}},
    {"NegativeSequence", plan_with({"--seq", "-4"}), 2, {"--seq", "-4"}},
    {"Beta1", plan_with({"--beta1", "2"}), 2, {"--beta1"}},
    {"NanDecay", plan_with({"--weight-decay", "nan"}), 2, {"--weight-decay"}},
    {"LossScale", plan_with({"--loss-scale", "0"}), 2, {"--loss-scale"}},
    {"Dropout", plan_with({"--dropout", "1.5"}), 2, {"dropout"}},
    {"NegativeThreads", plan_with({"--threads", "-1"}), 2, {"--threads"}},
    {"OutCannotBeMade", plan_with({"--out", "/proc/nope"}), 1, {"/proc/nope", "choose another --out"}},
    {"OutBelowAFile", plan_with({"--out", "text.txt/run"}), 1, {"text.txt: cannot create the folder", "--out"}},
};

class Errors : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TrainFolder;
    auto& f = *folder_;
    f.write("empty.txt", "");
    f.write("one.txt", "x");
    std::filesystem::create_directories(f.path() / "emptydir");
    f.write("binary.dat", std::string("\x7f"
                                      "ELF\0\0\0\1",
                                      8) +
                              std::string(5000, '\0'));
    std::string shard = f.read("data/train-000000.bin"), val = f.read("data/val-000000.bin");
    f.write("cut/train-000000.bin", shard.substr(0, shard.size() - 200));
    f.write("cut/val-000000.bin", val);
    f.write("foreign/train-000000.bin", std::string(4096, 'x'));
    f.write("foreign/val-000000.bin", std::string(4096, 'x'));
    f.write("beyond/train-000000.bin", shard);  // without meta.json nothing says its vocabulary; letters are above 97
    f.write("beyond/val-000000.bin", val);
    shard[1024 + 2 * 700] = shard[1025 + 2 * 700] = '\x7f';
    f.write("beyondlater/train-000000.bin", shard);
    f.write("beyondlater/val-000000.bin", val);
    f.write("short.txt", sample_text(40));
    EXPECT_EQ(run_crest({"data", "prepare", "short.txt", "--tokenizer", "bytes", "--out", "short"}, f.options()).code,
              0);
    f.write("heads.toml", "preset = \"nano\"\nheads = 3\nwidth = 128\n");
    f.write("key.toml", "stepz = 3\n");
    f.write("help.toml", "help = true\n");
    f.write("config.toml", "config = \"other.toml\"\n");
    f.write("modelkey.toml", "preset = \"nano\"\nlayerz = 3\n");
    f.write("bad.toml", "steps = 3\nlr = [\n");
    f.write("project/config.toml", "title = \"a project of somebody\"\n");
    EXPECT_EQ(f.train("done", 2).code, 0);
  }
  static void TearDownTestSuite() { delete folder_; }
  static TrainFolder* folder_;
};
TrainFolder* Errors::folder_ = nullptr;

}  // namespace

TEST_P(Errors, CodeAndMessage) {
  auto flags = GetParam().flags;
  flags.insert(flags.begin(), "train");
  expect_error(flags, GetParam().code, GetParam().said, folder_->options());
  // Tokens are checked as they are read, after the run has begun.
  bool begun = contains(GetParam().name, "TokenBeyondVocabulary");
  EXPECT_EQ(folder_->exists("out"), begun) << "a run that did not start leaves no folder";
  std::filesystem::remove_all(folder_->path() / "out");
}

INSTANTIATE_TEST_SUITE_P(Train, Errors, testing::ValuesIn(cases), [](auto& i) { return i.param.name; });

// Preparing a large text takes minutes, so it must not come before the checks.
TEST(WrongSettings, AreFoundBeforeTheTextIsPrepared) {
  TrainFolder f;
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--model", "nanoo"}, {"--optimizer", "adam"}, {"--batch", "0"}, {"--seq", "100000"}}) {
    std::vector<std::string> arguments = {"train", "text.txt", "--out", "out"};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    RunResult r = run_crest(arguments, f.options());
    EXPECT_EQ(r.code, 2) << wrong[0];
    EXPECT_EQ(r.err.rfind("crest: error: ", 0), 0u) << r.err;
  }
}

TEST(ACacheThatCannotBeEntered, HasAPlainError) {
  TrainFolder f;
  std::filesystem::create_symlink("loop", f / "loop");
  RunOptions options = f.options();
  options.environment.emplace_back("CREST_CACHE", f / "loop/cache");
  const std::vector<std::string> train = {"train", "text.txt", "--model", "tiny.toml", "--steps", "1"};
  expect_error(train, 1, {"loop/cache"}, options);
  EXPECT_FALSE(contains(run_crest(train, options).err, "filesystem error"));
}

TEST(ErrorText, HoldsNoEscapeSequences) {
  TrainFolder f;
  std::string evil = "a\x1b[31mb";
  std::vector<std::vector<std::string>> all = {{evil + ".txt"},
                                               {"--data", evil},
                                               {"--data", "data", "--model", evil},
                                               {"--data", "data", "--" + evil, "1"},
                                               {"--data", "data", "--kernel", evil},
                                               {"--data", "data", "--disable-pass", evil},
                                               {"--data", "data", "--schedule", evil, "--out", "out"},
                                               {"--data", "data", "--steps", evil},
                                               {"--data", "data", "--init", evil},
                                               {"--config", evil},
                                               {"--resume", evil}};
  for (auto flags : all) {
    flags.insert(flags.begin(), "train");
    RunResult r = run_crest(flags, f.options());
    EXPECT_NE(r.code, 0);
    EXPECT_TRUE(contains(r.err, "crest: error: ")) << r.err;
    EXPECT_EQ(r.err.find('\x1b'), std::string::npos) << r.err;
  }
  // Names of trainable texts.
  std::filesystem::copy(f.path() / "data", f.path() / evil);
  RunResult r =
      run_crest({"train", "--data", evil, "--model", "tiny.toml", "--steps", "2", "--out", evil + "-run"}, f.options());
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err.find('\x1b'), std::string::npos) << r.err;
  EXPECT_EQ(f.resume(evil + "-run", {"--steps", "4"}).code, 0);
}

TEST(InitOfAnotherModel, NamesWhatDiffers) {
  TrainFolder f;
  ASSERT_EQ(f.train("done", 2).code, 0);
  f.write("deep.toml", "preset = \"nano\"\nlayers = 3\nheads = 2\nwidth = 32\ncontext = 32\nvocab = 257\n");
  expect_error({"train", "--data", "data", "--model", "deep.toml", "--init", "done", "--out", "out"}, 1, {"h.2"},
               f.options());
  EXPECT_FALSE(f.exists("out"));
  // Without --model, a run continues with the model of --init.
  RunResult r = run_crest({"train", "--data", "data", "--init", "done", "--out", "out", "--steps", "3", "--batch", "2"},
                          f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "2 layers, width 32")) << r.err;
  EXPECT_TRUE(contains(r.err, "this learning rate suits a new model")) << r.err;
}

TEST(SmallValidation, IsToldAndSkipped) {
  TrainFolder f(100);
  RunResult r = run_crest(
      {"train", "--data", "data", "--model", "nano", "--steps", "2", "--batch", "1", "--out", "out"}, f.options());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(contains(r.err, "no validation: the split has ")) << r.err;
  for (auto& row : f.log("out")) EXPECT_FALSE(row.contains("val_loss"));
}
