#include "store/recorder.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "core/text.h"

namespace crest {

static void warn_on_standard_error(const std::string& text) {
  std::fputs(fmt::format("crest: warning: {}\n", printable(text, 1000)).c_str(), stderr);
}

Recorder::Recorder(const std::string& file, Warn warn, Patience patience)
    : store_(
          std::make_unique<Store>(file.empty() ? default_store_file() : file, Store::Mode::write, std::move(patience))),
      warn_(warn ? std::move(warn) : warn_on_standard_error) {}

void Recorder::stop(const std::string& why) {
  std::string file = store_->file();
  store_.reset();
  warn_(fmt::format("stopped recording in {}: {}", file, why));
}

void Recorder::begin(RunRecord& record, int64_t earlier) {
  record.id = 0;
  if (!store_) return;
  try {
    if (earlier) store_->reopen(earlier);
    record.id = earlier ? earlier : store_->begin(record);
    begun_ = true;
  } catch (const std::exception& e) {
    if (!begun_) throw;
    stop(e.what());
  }
}

void Recorder::attempt(const RunRecord& record, const std::function<void()>& write) {
  if (!store_ || record.id == 0) return;
  try {
    write();
  } catch (const std::exception& e) {
    stop(e.what());
  }
}

void Recorder::add_samples(const RunRecord& record, const std::vector<SampleRow>& samples) {
  attempt(record, [&] { store_->add_samples(record.id, samples); });
}

void Recorder::add_log(const RunRecord& record, const std::vector<LogRow>& rows) {
  attempt(record, [&] { store_->add_log(record.id, rows); });
}

void Recorder::set_document(const RunRecord& record, const std::string& name, const Json& json) {
  attempt(record, [&] { store_->set_document(record.id, name, json); });
}

void Recorder::finish(const RunRecord& record) {
  attempt(record, [&] { store_->finish(record.id, record); });
}

}  // namespace crest
