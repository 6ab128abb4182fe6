// The run database: one SQLite file (WAL) with every bench, profile, experiment and training run.
// Several processes can write at once; a killed process leaves its own open run with everything
// written so far.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/database.h"
#include "store/record.h"
#include "store/summary.h"

namespace crest {

struct RunFilter {
  // "" = any; since/until: UTC prefix.
  std::string kind = {}, status = {}, model = {}, device = {}, phase = {}, grid = {}, key = {}, since = {}, until = {};
  std::string text = {};  // part of the name, command or folder
  std::vector<std::pair<std::string, std::string>> settings =
      {};             // keys of the recipe and their values: {"lr", "0.001"}
  int64_t limit = 0;  // 0: all; the newest ones
};

class Store {
 public:
  // Throws for any file but a Crest run database, for a damaged one, and for one of a newer Crest.
  // write: opens or creates; read: the file must exist, but its folder need not be writable.
  enum class Mode { write, read };
  explicit Store(const std::string& file, Mode mode = Mode::write, Patience patience = {});
  ~Store();
  Store(Store&&) noexcept;

  // Writes the record with status "running" unless set, and returns its id. Fills in empty uid,
  // started, name and key, and makes the folder absolute. The add_ functions append; their data
  // survives if the process is killed after they return.
  int64_t begin(RunRecord& record);
  // Continues a record, such as a resumed training run's: "running" in this process, with an empty
  // log.
  void reopen(int64_t id);
  void add_samples(int64_t id, const std::vector<SampleRow>& samples);
  void add_log(int64_t id, const std::vector<LogRow>& rows);
  void set_document(int64_t id, const std::string& name, const Json& json);
  // Writes status, error, result and environment_after and the end time.
  void finish(int64_t id, const RunRecord& record);
  // Writes everything in one transaction (for runs measured before they are recorded). An existing
  // uid is left unchanged; returns its id.
  int64_t add(RunRecord& record);
  // Adds the records filled in by `next` until it returns false: all of them, or none when it
  // throws.
  struct Added {
    std::vector<int64_t> ids;
    int64_t known = 0;  // uids already present
  };
  Added add_all(const std::function<bool(RunRecord&)>& next);

  // Without samples, log and documents; newest first. Runs of dead processes are "lost". Unreadable
  // parts of a run stay empty and are listed in its `damage`.
  std::vector<RunRecord> list(const RunFilter& filter = {}) const;
  RunRecord head(int64_t id) const;  // as in list()
  // These throw for a damaged run, with the run and the damage.
  RunRecord load(int64_t id) const;                          // everything
  RunRecord load_without_documents(int64_t id) const;        // document names map to null
  Json document(int64_t id, const std::string& name) const;  // the error lists the existing names
  // The log as a curve (store/summary.h).
  LogCurve curve(int64_t id, int64_t most_points, const LogCurve* known = nullptr) const;
  // Changes when another process has written to the file. Reading it is cheap.
  int64_t version() const;
  // By id, uid (or a prefix of at least 4 digits), name (the newest with it), or path of a run
  // folder. The error suggests near names.
  int64_t find(const std::string& run) const;
  void erase(int64_t id);

  const std::string& file() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// --store, else $CREST_STORE, else crest.db in the working folder.
std::string default_store_file();

}  // namespace crest
