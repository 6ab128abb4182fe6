// System calls fail, write less, or kill the process at every point of a save. Checkpoints saved
// before stay safe.
#include "faults.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/timer.h"
#include "tiny.h"

using namespace crest;
using namespace crest::test;

namespace {

// The save under test, after an earlier one is safely on disk.
struct Scenario {
  const char* name;
  TinyModel before, after;
  int keep;
};

std::vector<Scenario> scenarios() {
  std::vector<Scenario> list;
  list.push_back({"next step, the old one removed", TinyModel(1), TinyModel(2), 1});
  list.push_back({"next step, the old one kept", TinyModel(1), TinyModel(2), 0});
  list.push_back({"same step, other content", TinyModel(1, 1), TinyModel(1, 2), 1});
  return list;
}

int64_t calls_of(const Scenario& s) {
  MemoryFolder folder;
  save_checkpoint(s.before.contents(), folder.path(), 0);
  Faults faults;
  save_checkpoint(s.after.contents(), folder.path(), s.keep);
  return faults.calls();
}

// 1: the earlier checkpoint is found, 2: the new one. Any other result is a failure.
int which(const Scenario& s, const std::string& root) {
  std::string reports;
  auto found = find_checkpoint(root, [&](auto& text) { reports += text; });
  if (!found) return ADD_FAILURE() << "no checkpoint left; " << reports, 0;
  EXPECT_EQ(reports, "") << "an interrupted save must not look like damage";
  // Nothing with a checkpoint's name may be partial, including older ones.
  for (auto& folder : list_checkpoints(root))
    EXPECT_EQ(error_of([&] { Checkpoint::open(join_path(root, folder.name)).verify(); }), "");
  if (s.after.equals(*found)) return 2;
  EXPECT_TRUE(s.before.equals(*found));
  return 1;
}

bool has_leftovers(const std::string& root) {
  bool any = false;
  DIR* handle = ::opendir(root.c_str());
  while (dirent* entry = ::readdir(handle))
    if (std::string name = entry->d_name; name != "." && name != "..")
      any = any || name[0] == '.' || name == "latest.tmp";
  ::closedir(handle);
  return any;
}

// Waits for a child; its status. A killed one may leave the file where libomp (used by sanitizer
// builds) registers a process: empty, and fatal to a later process of the same number.
int reap(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  std::string file = "/dev/shm/__KMP_REGISTERED_LIB_" + std::to_string(child) + "_" + std::to_string(::getuid());
  ::unlink(file.c_str());
  return status;
}

}  // namespace

TEST(Faults, KilledAtEverySystemCall) {
  for (auto& s : scenarios()) {
    int64_t calls = calls_of(s);
    ASSERT_GT(calls, 30);
    int old_found = 0, new_found = 0;
    for (int64_t k = 0; k < calls; ++k) {
      SCOPED_TRACE(::testing::Message() << s.name << ", killed at call " << k << " of " << calls);
      MemoryFolder folder;
      save_checkpoint(s.before.contents(), folder.path(), 0);
      pid_t child = ::fork();
      if (child == 0) {
        Faults faults(Fault::kill, k);
        save_checkpoint(s.after.contents(), folder.path(), s.keep);
        ::_exit(0);
      }
      int status = reap(child);
      ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 99) << "the fault did not happen";
      (which(s, folder.path()) == 2 ? new_found : old_found)++;
      // The next save is not blocked and clears the killed one's remains.
      save_checkpoint(s.after.contents(), folder.path(), s.keep);
      EXPECT_EQ(which(s, folder.path()), 2);
      EXPECT_FALSE(has_leftovers(folder.path()));
      EXPECT_EQ(list_checkpoints(folder.path()).size(), s.keep == 0 ? 2u : 1u);
    }
    EXPECT_GT(old_found, 10);
    EXPECT_GT(new_found, 3);
  }
}

// Whether an error names the place: the folder, or its parent, since a save opens the parent first.
bool says_where(const Error& e, const std::string& folder) {
  return contains(e.where(), folder) || e.where() == std::filesystem::path(folder).parent_path();
}

TEST(Faults, EveryCallFailing) {
  for (auto& s : scenarios())
    for (int error : {ENOSPC, EIO})
      for (Fault fault : {Fault::fail_once, Fault::fail_from}) {
        int64_t calls = calls_of(s), refused = 0;
        for (int64_t k = 0; k < calls; ++k) {
          SCOPED_TRACE(::testing::Message() << s.name << ", call " << k << " of " << calls << ": " << strerror(error));
          MemoryFolder folder;
          save_checkpoint(s.before.contents(), folder.path(), 0);
          std::string message, hit;
          {
            Faults faults(fault, k, error);
            try {
              for (auto& w : save_checkpoint(s.after.contents(), folder.path(), s.keep).warnings) message += w;
              EXPECT_EQ(which(s, folder.path()), 2) << "a save that returns must have saved";
            } catch (const Error& e) {
              message = e.what();
              EXPECT_EQ(e.code(), Exit::failed);
              EXPECT_TRUE(says_where(e, folder.path())) << e.where();
              EXPECT_FALSE(e.advice().empty()) << e.what();
              ++refused;
              which(s, folder.path());
            }
            hit = faults.hit();
          }
          // Only closing a folder handle may fail without an error: the folder's sync has already
          // succeeded.
          if (hit != "close") {
            EXPECT_TRUE(contains(message, strerror(error))) << hit << ": " << message;
          }
          save_checkpoint(s.after.contents(), folder.path(), s.keep);
          EXPECT_EQ(which(s, folder.path()), 2);
          EXPECT_FALSE(has_leftovers(folder.path()));
        }
        EXPECT_GT(refused, 20);
      }
}

// A second fault during the cleanup after the first one, or in the next save: 60 seeded pairs,
// CREST_FAULT_PAIRS.
TEST(Faults, PairsNeverLoseTheLastGoodCheckpoint) {
  const int64_t pairs = count_from("CREST_FAULT_PAIRS", 60);
  auto all = scenarios();
  std::vector<int64_t> calls;
  for (auto& s : all) calls.push_back(calls_of(s));
  int kept = 0, replaced = 0, killed = 0;
  for (int64_t i = 0; i < pairs; ++i) {
    auto random = [&](uint64_t what, int64_t below) {
      return int64_t(random_bits(41, what, uint64_t(i)) % uint64_t(below));
    };
    size_t which_one = size_t(random(0, int64_t(all.size())));
    Scenario& s = all[which_one];
    int64_t first = random(1, calls[which_one]), second = first + 1 + random(2, 12);
    int error = random(3, 2) ? ENOSPC : EIO, second_error = random(4, 2) ? EROFS : EIO;
    const Fault kinds[] = {Fault::fail_once, Fault::fail_from, Fault::kill};
    Fault kind = kinds[random(5, 3)];
    SCOPED_TRACE(::testing::Message() << "pair " << i << ": " << s.name << ", calls " << first << " and " << second);
    MemoryFolder folder;
    save_checkpoint(s.before.contents(), folder.path(), 0);
    pid_t child = ::fork();
    if (child == 0) {
      Faults faults(random(6, 4) ? Fault::fail_once : Fault::short_write, first, error);
      faults.then(kind, second, second_error);
      bool saved = false;
      for (int attempt = 0; attempt < 2; ++attempt) try {  // a run saves again at its next step
          save_checkpoint(s.after.contents(), folder.path(), s.keep);
          saved = true;
        } catch (const Error& e) {
          if (!says_where(e, folder.path()) || e.advice().empty()) ::_exit(3);
        }
      ::_exit(saved ? 1 : 0);
    }
    int status = reap(child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    int code = WEXITSTATUS(status);
    ASSERT_TRUE(code == 0 || code == 1 || code == 99) << "an error without place or advice, or none of ours: " << code;
    int found = which(s, folder.path());
    EXPECT_TRUE(found == 2 || code != 1) << "a save that returns must have saved";
    killed += code == 99;
    (found == 2 ? replaced : kept)++;
    save_checkpoint(s.after.contents(), folder.path(), s.keep);
    EXPECT_EQ(which(s, folder.path()), 2);
    EXPECT_FALSE(has_leftovers(folder.path()));
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(replaced, 0);
  EXPECT_GT(killed, 0);
  std::printf(
      "%lld pairs of faults over a save: the earlier checkpoint kept %d times, the new one there %d times, "
      "%d killed, 0 lost\n",
      (long long)pairs, kept, replaced, killed);
}

TEST(Faults, FailedSavesGiveTheirSpaceBack) {
  Scenario s{"", TinyModel(1), TinyModel(2), 1};
  MemoryFolder folder;
  save_checkpoint(s.before.contents(), folder.path(), 0);
  Faults faults(Fault::fail_once, 8, ENOSPC);
  EXPECT_NE(error_of([&] { save_checkpoint(s.after.contents(), folder.path(), 1); }), "");
  EXPECT_FALSE(has_leftovers(folder.path()));
}

// The folder of checkpoints must be synced right after the rename. Writing `latest` syncs it too,
// so no replay would notice a missing sync. But `latest` may fail without failing the save.
TEST(Faults, PublishingIsSyncedBeforeAnythingElse) {
  MemoryFolder folder;
  Faults faults(Fault::none, -1, 0, true);
  std::string path = save_checkpoint(TinyModel(1).contents(), folder.path(), 0).path;
  auto& calls = faults.recorded();
  size_t at = 0;
  while (at < calls.size() && calls[at].path2 != path) ++at;
  ASSERT_LT(at + 1, calls.size());
  EXPECT_EQ(calls[at - 1].op + " " + calls[at - 1].path, "fsync " + (folder / ".tmp-step-000001"));
  EXPECT_EQ(calls[at + 1].op + " " + calls[at + 1].path, "fsync " + folder.path());
}

TEST(Faults, ShortWritesAreContinued) {
  Scenario s{"", TinyModel(1), TinyModel(2), 1};
  int64_t calls = calls_of(s), shortened = 0;
  for (int64_t k = 0; k < calls; ++k) {
    MemoryFolder folder;
    save_checkpoint(s.before.contents(), folder.path(), 0);
    {
      Faults faults(Fault::short_write, k);
      EXPECT_TRUE(save_checkpoint(s.after.contents(), folder.path(), s.keep).warnings.empty());
      shortened += faults.hit() == "write";
    }
    EXPECT_EQ(which(s, folder.path()), 2) << k;
  }
  EXPECT_GE(shortened, 5) << "one write for each file of a checkpoint";
}

TEST(Faults, AtomicFilesHoldOldOrNew) {
  MemoryFolder folder;
  std::string path = folder / "file";
  write_file_atomic(path, "old");
  int64_t calls = 0;
  {
    Faults faults;
    write_file_atomic(path, "old");
    calls = faults.calls();
  }
  for (int64_t k = 0; k < calls; ++k) {
    write_file_atomic(path, "old");
    Faults faults(Fault::fail_once, k, EIO);
    bool threw = !error_of([&] { write_file_atomic(path, "new"); }).empty();
    std::string now = read_file(path, 10);
    EXPECT_TRUE(now == "new" || (threw && now == "old")) << now;
  }
}

// Kills at random moments: 1,000 or as many as 20 s allow, exactly CREST_KILLS if set.
TEST(Faults, RandomKills) {
  const int64_t asked = count_from("CREST_KILLS", 0);
  MemoryFolder folder;
  Timer timer;
  // Kills come within the time of a few saves, on a disk of any speed.
  save_checkpoint(TinyModel(1).contents(), folder.path(), 0);
  std::vector<double> saves;
  for (int i = 0; i < 9; ++i) {
    Timer save;
    save_checkpoint(TinyModel(1).contents(), folder.path(), 2);
    saves.push_back(save.seconds());
  }
  std::nth_element(saves.begin(), saves.begin() + 4, saves.end());
  const double save_us = std::max(250.0, 1e6 * saves[4]);
  int64_t at_least = 1;
  int kills = 0, progress = 0, partial = 0;
  for (; asked ? kills < asked : kills < 1000 && (timer.seconds() < 20 || kills < 100); ++kills) {
    // The child reports safe steps through a pipe; reported steps must never be lost.
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    pid_t child = ::fork();
    if (child == 0) {
      for (int64_t step = at_least + 1;; ++step) {
        save_checkpoint(TinyModel(step).contents(), folder.path(), 2);
        if (::write(pipe_ends[1], &step, sizeof step) != sizeof step) ::_exit(1);
      }
    }
    ::close(pipe_ends[1]);
    ::usleep(useconds_t(save_us * (0.2 + 5 * double(random_bits(7, 0, uint64_t(kills)) % 1000) / 1000)));
    ::kill(child, SIGKILL);
    int64_t told = 0, last = 0;
    while (::read(pipe_ends[0], &told, sizeof told) == sizeof told) last = told;
    ::close(pipe_ends[0]);
    reap(child);
    partial += has_leftovers(folder.path());
    std::string reports;
    auto found = find_checkpoint(folder.path(), [&](auto& text) { reports += text; });
    ASSERT_TRUE(found) << "kill " << kills;
    ASSERT_EQ(reports, "");
    ASSERT_GE(found->step(), std::max(at_least, last)) << "a finished save was lost";
    ASSERT_TRUE(TinyModel(found->step()).equals(*found));
    progress += found->step() > at_least;
    at_least = found->step();
  }
  EXPECT_GE(kills, 100);
  EXPECT_GT(progress, 10) << "the kills came before anything was saved";
  EXPECT_GT(partial, 10) << "the kills did not meet a save";
  std::printf("%d kills, %d of them inside a save, 0 checkpoints lost, 0 partial ones loaded; step %lld reached\n",
              kills, partial, (long long)at_least);
}
