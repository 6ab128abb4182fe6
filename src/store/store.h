// The run database: one SQLite file (WAL) in which every bench, profile, experiment and training run is recorded. Two
// processes may write at once; what a killed process leaves is its own open run, with all it had written until then.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/database.h"
#include "store/record.h"

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
  // Throws for a file that is no run database of Crest, is damaged, or was written by a newer Crest. write: opens or
  // creates; read: the file must be there, its folder need not be writable.
  enum class Mode { write, read };
  explicit Store(const std::string& file, Mode mode = Mode::write, Patience patience = {});
  ~Store();
  Store(Store&&) noexcept;

  // Writes the record with status "running" unless it says otherwise, returns its id. uid, started, name and key are
  // filled in when empty, and the folder is made absolute. The add_ functions append; what they wrote stays when the
  // process is killed after their return.
  int64_t begin(RunRecord& record);
  // Continues a record, as of a training run that is resumed: "running" again, of this process, with an empty log.
  void reopen(int64_t id);
  void add_samples(int64_t id, const std::vector<SampleRow>& samples);
  void add_log(int64_t id, const std::vector<LogRow>& rows);
  void set_document(int64_t id, const std::string& name, const Json& json);
  // Writes status, error, result and environment_after and the end time.
  void finish(int64_t id, const RunRecord& record);
  // Everything at once, in one transaction (runs that were measured before they are recorded). A uid that is there
  // already is left alone; returns its id.
  int64_t add(RunRecord& record);
  // The records that `next` fills in until it returns false: all of them, or none when it throws.
  struct Added {
    std::vector<int64_t> ids;
    int64_t known = 0;  // uids that were there already
  };
  Added add_all(const std::function<bool(RunRecord&)>& next);

  // Without samples, log and documents; newest first. Runs whose process is gone are "lost". What cannot be read of a
  // run stays empty and is told in its `damage`.
  std::vector<RunRecord> list(const RunFilter& filter = {}) const;
  RunRecord head(int64_t id) const;  // as in a list
  // Throw for a damaged run, naming it and what is damaged.
  RunRecord load(int64_t id) const;                          // everything
  RunRecord load_without_documents(int64_t id) const;        // their names stand with null
  Json document(int64_t id, const std::string& name) const;  // throws with the names that there are
  // id, uid (or a start of it of at least 4 digits), name (the newest of that name), or path of a run folder. Throws
  // with the nearest names.
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
