// Files that are not run databases, and unusable ones: an error with the reason, and no change to
// the file.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/random.h"
#include "store/files.h"

namespace crest::test {

namespace {

constexpr Store::Mode modes[] = {Store::Mode::write, Store::Mode::read};

// Opening fails in both modes, says this, and leaves the file as it is.
void expect_refused(const std::string& file, std::initializer_list<const char*> said) {
  auto content = [&] {
    std::ifstream in(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  bool regular = std::filesystem::is_regular_file(file);
  std::string before = regular ? content() : "";
  for (auto mode : modes) {
    std::string text = error_of([&] { Store(file, mode); });
    expect_says(text, said);
    expect_says(text, {file.c_str()});
  }
  if (regular) {
    EXPECT_EQ(content(), before);
  }
}

std::string good_file(const Folder& folder, const std::string& name = "good.db", int runs = 30) {
  Store store(folder / name);
  for (int i = 0; i < runs; ++i) {
    RunRecord r = bench_record("run " + std::to_string(i));
    r.status = "done";
    store.begin(r);
    store.add_samples(r.id, std::vector<SampleRow>(40, {1.5, 0, "a", false}));
    store.set_document(r.id, "plan", {{"text", std::string(3000, 'x')}});
  }
  return folder / name;
}

}  // namespace

TEST(StoreFiles, OfOtherKinds) {
  Folder f;
  expect_refused(f.write("text", "step 1 | loss 2.0\n"), {"not a run database"});
  expect_refused(f.write("long text", std::string(100'000, 'x')), {"not a run database"});
  expect_refused(f.path().string(), {"is a folder"});
  std::string pipe = f / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_refused(pipe, {"not a regular file"});
  expect_refused("/dev/null", {"not a regular file"});
  std::string foreign = f / "foreign.db";
  raw_sql(foreign, "CREATE TABLE songs (title TEXT); INSERT INTO songs VALUES ('x')");
  expect_refused(foreign, {"another program"});
  std::string marked = f / "marked.db";
  raw_sql(marked, "PRAGMA application_id = 252006674; CREATE TABLE songs (title TEXT)");
  expect_refused(marked, {"another program"});
}

TEST(StoreFiles, OfANewerCrest) {
  Folder f;
  std::string file = good_file(f, "new.db", 1);
  raw_sql(file, "PRAGMA user_version = 99");
  expect_refused(file, {"newer Crest", "99"});
}

TEST(StoreFiles, MissingOnes) {
  Folder f;
  expect_says(error_of([&] { Store(f / "none.db", Store::Mode::read); }),
              {"no run database", "crest bench", "--store"});
  EXPECT_FALSE(std::filesystem::exists(f / "none.db")) << "reading makes no file";
  expect_says(error_of([&] { Store(f / "no/folder.db"); }), {"no such folder"});
  expect_says(error_of([&] { Store(f.write("empty.db", ""), Store::Mode::read); }), {"empty"});
  Store(f / "empty.db");  // an empty file is where one begins
  EXPECT_EQ(Store(f / "empty.db", Store::Mode::read).list().size(), 0u);
}

TEST(StoreFiles, NamesThatSqliteUnderstandsDifferently) {
  Folder f;
  auto before = std::filesystem::current_path();
  std::filesystem::current_path(f.path());
  for (const char* name : {":memory:", "file:a.db?mode=memory", "a b%41?.db"}) {
    { Store(name).list(); }
    EXPECT_TRUE(std::filesystem::is_regular_file(f / name)) << name;
  }
  std::filesystem::current_path(before);
}

// Bytes changed anywhere: an error with a name, or the existing runs; never a crash or an endless
// loop.
TEST(StoreFiles, DamagedOnes) {
  Folder f;
  std::string good = f.read(std::filesystem::path(good_file(f)).filename().string());
  ASSERT_GT(good.size(), 100'000u);
  int refused = 0;
  for (uint64_t i = 0; i < 150; ++i) {
    std::string bad = good;
    uint64_t bits = random_bits(1, 0, i);
    size_t at = i < 50 ? bits % 4096 : bits % bad.size();
    size_t count = i % 3 == 0 ? 1 : 200;
    for (size_t k = 0; k < count && at + k < bad.size(); ++k) bad[at + k] = char(random_bits(2, i, k));
    if (i % 10 == 9) bad.resize(at);
    std::string file = f.write("bad.db", bad);
    try {
      Store store(file);
      for (auto& r : store.list()) store.load(r.id);
    } catch (const Error& e) {
      ++refused;
      EXPECT_NE(std::string(e.what()).find("bad.db"), std::string::npos) << e.what();
    }
    for (const char* rest : {"bad.db-wal", "bad.db-shm", "bad.db-journal"}) std::filesystem::remove(f / rest);
  }
  EXPECT_GT(refused, 60) << "most damage is seen";
}

TEST(StoreFiles, RecipesThatAreNoJson) {
  Folder f;
  std::string file = good_file(f, "good.db", 2);
  raw_sql(file, "UPDATE runs SET recipe = '{\"a\": ' WHERE id = 2");
  expect_says(error_of([&] { Store(file).load(2); }), {"run 2 (run 1) is damaged", "recipe", "JSON", "good.db"});
  raw_sql(file, "UPDATE runs SET recipe = '" + std::string(5000, '[') + "' WHERE id = 2");
  expect_says(error_of([&] { Store(file).load(2); }), {"run 2 (run 1) is damaged", "recipe", "nested"});
}

// Root may write anywhere, so this is tried as somebody else.
template <class Act>
static int as_nobody(Act act) {
  pid_t pid = fork();
  if (pid == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(99);
    try {
      act();
      _exit(0);
    } catch (const Error& e) {
      _exit(std::string(e.what()).find("writ") != std::string::npos ? 1 : 2);
    } catch (...) {
      _exit(3);
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StoreFiles, AFolderThatCannotBeWritten) {
  Folder f;
  std::string file = good_file(f, "good.db", 3);
  std::filesystem::permissions(f.path(), std::filesystem::perms(0555));
  std::filesystem::permissions(file, std::filesystem::perms(0444));
  int read = as_nobody([&] {
    if (access(file.c_str(), R_OK) != 0) _exit(99);
    if (Store(file, Store::Mode::read).list().size() != 3) _exit(50);
  });
  int write = as_nobody([&] {
    RunRecord r = bench_record();
    Store(file).begin(r);
  });
  int make = as_nobody([&] { Store(f / "new.db"); });
  std::filesystem::permissions(f.path(), std::filesystem::perms(0755));
  if (read == 99) GTEST_SKIP() << "needs another user to be, and a TMPDIR that this one can read";
  EXPECT_EQ(read, 0) << "runs in a read-only folder can be listed";
  EXPECT_EQ(write, 1);
  EXPECT_EQ(make, 1);
}

}  // namespace crest::test
