// Records measurements in the run store, or nowhere. A measurement matters more than its record: a
// store without write access is an error only before the first measurement; later it gives one
// warning, and recording stops.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/record.h"
#include "store/store.h"

namespace crest {

class Recorder {
 public:
  using Warn = std::function<void(const std::string&)>;

  Recorder() = default;  // records nothing
  // Opens or creates the store ("": default_store_file()); throws on failure. warn: receives the
  // warning; default standard error.
  explicit Recorder(const std::string& file, Warn warn = {}, Patience patience = {});

  bool on() const { return store_ != nullptr; }
  Store* store() const { return store_.get(); }  // null when not recording
  std::string file() const { return store_ ? store_->file() : ""; }

  // Sets record.id; 0 when not recording, and then the calls below do nothing. earlier: a record to
  // continue (Store::reopen) instead of a new one; 0: none.
  void begin(RunRecord& record, int64_t earlier = 0);
  void add_samples(const RunRecord& record, const std::vector<SampleRow>& samples);
  void add_log(const RunRecord& record, const std::vector<LogRow>& rows);
  void set_document(const RunRecord& record, const std::string& name, const Json& json);
  void finish(const RunRecord& record);

 private:
  void attempt(const RunRecord& record, const std::function<void()>& write);
  void stop(const std::string& why);
  std::unique_ptr<Store> store_;
  Warn warn_;
  bool begun_ = false;
};

}  // namespace crest
