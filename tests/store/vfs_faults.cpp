// SQLite's system calls fail, one after the other: recorded data stays, completed calls count, the
// error has the reason.
#include <sqlite3.h>

#include <cstring>
#include <map>

#include "core/random.h"
#include "store/files.h"
#include "store/recorder.h"

namespace crest::test {

namespace {

// SQLite's own calls with a fault at the k-th, as the default of this process while it lives.
class FaultyFiles {
 public:
  FaultyFiles(int64_t k, bool from_then_on) : k_(k), from_then_on_(from_then_on) {
    current = this;
    real = sqlite3_vfs_find(nullptr);
    shim = *real;
    shim.zName = "crest-faults";
    shim.szOsFile = int(sizeof(Shim)) + real->szOsFile;
    shim.xOpen = [](sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
      auto* s = reinterpret_cast<Shim*>(file);
      s->base.pMethods = nullptr;
      if (current->enter("open")) return SQLITE_CANTOPEN;
      int code = real->xOpen(real, name, s->inner(), flags, out);
      if (s->inner()->pMethods) s->base.pMethods = methods();
      return code;
    };
    shim.xDelete = [](sqlite3_vfs*, const char* name, int sync) {
      return current->enter("delete") ? SQLITE_IOERR_DELETE : real->xDelete(real, name, sync);
    };
    shim.xAccess = [](sqlite3_vfs*, const char* name, int flags, int* out) {
      return current->enter("access") ? SQLITE_IOERR_ACCESS : real->xAccess(real, name, flags, out);
    };
    shim.xFullPathname = [](sqlite3_vfs*, const char* name, int n, char* out) {
      return current->enter("path") ? SQLITE_CANTOPEN : real->xFullPathname(real, name, n, out);
    };
    sqlite3_vfs_register(&shim, 1);
  }
  ~FaultyFiles() {
    sqlite3_vfs_unregister(&shim);
    sqlite3_vfs_register(real, 1);
    current = nullptr;
  }
  FaultyFiles(const FaultyFiles&) = delete;
  int64_t calls() const { return calls_; }
  const std::string& hit() const { return hit_; }

 private:
  struct Shim {
    sqlite3_file base;
    sqlite3_file* inner() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  };
  static sqlite3_file* in(sqlite3_file* f) { return reinterpret_cast<Shim*>(f)->inner(); }
  static inline FaultyFiles* current = nullptr;
  static inline sqlite3_vfs* real = nullptr;
  static inline sqlite3_vfs shim;

  bool enter(const char* what) {
    int64_t number = calls_++;
    if (k_ < 0 || (from_then_on_ ? number < k_ : number != k_)) return false;
    if (hit_.empty()) hit_ = what;
    return true;
  }

  static const sqlite3_io_methods* methods() {
    static const sqlite3_io_methods all = {
        3,
        [](sqlite3_file* f) { return in(f)->pMethods->xClose(in(f)); },
        [](sqlite3_file* f, void* to, int n, sqlite3_int64 at) {
          return current->enter("read") ? SQLITE_IOERR_READ : in(f)->pMethods->xRead(in(f), to, n, at);
        },
        [](sqlite3_file* f, const void* from, int n, sqlite3_int64 at) {
          if (!current->enter("write")) return in(f)->pMethods->xWrite(in(f), from, n, at);
          in(f)->pMethods->xWrite(in(f), from, n / 2, at);  // a part of it reached the disk
          return current->calls_ % 2 ? SQLITE_FULL : SQLITE_IOERR_WRITE;
        },
        [](sqlite3_file* f, sqlite3_int64 n) {
          return current->enter("truncate") ? SQLITE_IOERR_TRUNCATE : in(f)->pMethods->xTruncate(in(f), n);
        },
        [](sqlite3_file* f, int flags) {
          return current->enter("sync") ? SQLITE_IOERR_FSYNC : in(f)->pMethods->xSync(in(f), flags);
        },
        [](sqlite3_file* f, sqlite3_int64* n) {
          return current->enter("size") ? SQLITE_IOERR_FSTAT : in(f)->pMethods->xFileSize(in(f), n);
        },
        [](sqlite3_file* f, int level) {
          return current->enter("lock") ? SQLITE_IOERR_LOCK : in(f)->pMethods->xLock(in(f), level);
        },
        [](sqlite3_file* f, int level) { return in(f)->pMethods->xUnlock(in(f), level); },
        [](sqlite3_file* f, int* out) { return in(f)->pMethods->xCheckReservedLock(in(f), out); },
        [](sqlite3_file* f, int op, void* arg) { return in(f)->pMethods->xFileControl(in(f), op, arg); },
        [](sqlite3_file* f) { return in(f)->pMethods->xSectorSize(in(f)); },
        [](sqlite3_file* f) { return in(f)->pMethods->xDeviceCharacteristics(in(f)); },
        [](sqlite3_file* f, int page, int size, int extend, void volatile** out) {
          if (current->enter("shared memory")) return SQLITE_IOERR_SHMMAP;
          return in(f)->pMethods->xShmMap(in(f), page, size, extend, out);
        },
        [](sqlite3_file* f, int offset, int n, int flags) {
          if ((flags & SQLITE_SHM_LOCK) && current->enter("shared lock")) return SQLITE_IOERR_SHMLOCK;
          return in(f)->pMethods->xShmLock(in(f), offset, n, flags);
        },
        [](sqlite3_file* f) { in(f)->pMethods->xShmBarrier(in(f)); },
        [](sqlite3_file* f, int remove) { return in(f)->pMethods->xShmUnmap(in(f), remove); },
        [](sqlite3_file* f, sqlite3_int64 at, int n, void** out) { return in(f)->pMethods->xFetch(in(f), at, n, out); },
        [](sqlite3_file* f, sqlite3_int64 at, void* p) { return in(f)->pMethods->xUnfetch(in(f), at, p); },
    };
    return &all;
  }

  int64_t k_, calls_ = 0;
  bool from_then_on_;
  std::string hit_;
};

// Calls that returned without an error.
struct Done {
  int64_t id = 0;
  size_t samples = 0, rows = 0;
  bool document = false, finished = false;
};

// A run from its begin to its end, then a list; throws the store's errors.
void record_one(const std::string& file, Done& done) {
  Store store(file);
  RunRecord r = bench_record("second");
  done.id = store.begin(r);
  for (int i = 0; i < 2; ++i) {
    store.add_samples(r.id, std::vector<SampleRow>(20, {1.5, i, "a", false}));
    done.samples += 20;
    store.add_log(r.id, {LogRow(), LogRow()});
    done.rows += 2;
  }
  store.set_document(r.id, "plan", {{"text", std::string(9000, 'x')}});
  done.document = true;
  r.status = "done";
  store.finish(r.id, r);
  done.finished = true;
  if (store.list().size() != 2) ADD_FAILURE() << "a list without an error lacks a run";
  store.load(r.id);
}

std::string template_of(const Folder& f) {
  Store store(f / "runs.db");
  RunRecord r = bench_record("first");
  r.status = "done", r.samples.assign(50, {1, 0, "", false}), r.documents["plan"] = {{"a", 1}};
  store.add(r);
  return "runs.db";
}

void check_after(const std::string& file, const Done& done) {
  Store store(file);
  RunRecord first = store.load(store.find("first"));
  EXPECT_EQ(first.samples.size(), 50u);
  EXPECT_EQ(first.documents.at("plan")["a"], 1);
  if (done.id) {
    RunRecord r = store.load(done.id);
    EXPECT_GE(r.samples.size(), done.samples);
    EXPECT_GE(r.log.size(), done.rows);
    EXPECT_EQ(r.samples.size() % 20, 0u) << "a part of what was added at once";
    EXPECT_EQ(r.log.size() % 2, 0u);
    EXPECT_TRUE(!done.document || r.documents.count("plan"));
    EXPECT_TRUE(!done.finished || r.status == "done");
  }
  RunRecord next = bench_record("next");
  store.begin(next);
  EXPECT_EQ(raw_sql(file, "PRAGMA integrity_check"), "ok");
}

}  // namespace

// Every call of SQLite, CREST_STORE_FAULTS=all; else a seeded choice of them.
TEST(StoreFaults, AnyCallThatFailsLosesNothing) {
  Folder f;
  std::string name = template_of(f);
  const std::string good = f.read(name);
  int64_t calls = 0;
  {
    Folder one;
    Done done;
    FaultyFiles count(-1, false);
    record_one(one.write("runs.db", good), done);
    calls = count.calls();
  }
  ASSERT_GT(calls, 100);
  const bool all = std::getenv("CREST_STORE_FAULTS");
  std::map<std::string, int> met;
  int points = 0, refused = 0;
  for (int64_t i = 0; i < (all ? 2 * calls : 160); ++i) {
    bool from_then_on = i % 2;
    int64_t k = all ? i / 2 : int64_t(random_bits(11, 0, uint64_t(i)) % uint64_t(calls));
    SCOPED_TRACE(testing::Message() << "call " << k << " of " << calls << (from_then_on ? " and all later ones" : ""));
    Folder one;
    std::string file = one.write("runs.db", good);
    Done done;
    {
      FaultyFiles faults(k, from_then_on);
      try {
        record_one(file, done);
      } catch (const Error& e) {
        ++refused;
        EXPECT_NE(std::string(e.what()).find("runs.db"), std::string::npos) << e.what();
        EXPECT_FALSE(e.advice().empty()) << e.what();
      }
      ++met[faults.hit()];
    }
    ++points;
    check_after(file, done);
  }
  EXPECT_GT(refused, points / 3);
  for (const char* kind : {"write", "read"}) EXPECT_GT(met[kind], 0) << kind;
  std::printf("%d faults at SQLite's calls (%lld calls of a run), %d refused, 0 runs lost\n", points, (long long)calls,
              refused);
}

// A measurement continues, and reports the failure once.
TEST(StoreFaults, ARecorderGoesOn) {
  Folder f;
  const std::string good = f.read(template_of(f));
  int stopped = 0;
  for (int64_t k = 5; k < 400; k += 13) {
    SCOPED_TRACE(k);
    Folder one;
    std::string file = one.write("runs.db", good);
    int warnings = 0;
    FaultyFiles faults(k, true);
    try {
      Recorder recorder(file, [&](const std::string&) { ++warnings; });
      RunRecord r = bench_record("second");
      recorder.begin(r);
      for (int i = 0; i < 9; ++i) recorder.add_samples(r, {{1, i, "", false}});
      recorder.finish(r);
      EXPECT_EQ(warnings, recorder.on() ? 0 : 1);
      stopped += !recorder.on();
    } catch (const Error& e) {  // before anything was measured
      EXPECT_NE(std::string(e.what()).find("runs.db"), std::string::npos) << e.what();
    }
  }
  EXPECT_GT(stopped, 3);
}

}  // namespace crest::test
