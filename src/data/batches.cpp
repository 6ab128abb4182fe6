#include "data/batches.h"

#include <utility>

namespace crest {

void Batch::add(const CorpusPiece& piece) {
  text += piece.text;
  pieces.push_back(piece);
  pieces.back().text = {};  // valid during this call only
  ends.push_back(text.size());
}

std::vector<std::string_view> Batch::texts() const {
  std::vector<std::string_view> all;
  size_t begin = 0;
  for (size_t end : ends) all.push_back(std::string_view(text).substr(begin, end - begin)), begin = end;
  return all;
}

std::vector<uint8_t> Batch::continues() const {
  std::vector<uint8_t> all;
  for (auto& piece : pieces) all.push_back(!piece.starts_document);
  return all;
}

BatchReader::BatchReader(std::vector<SourceFile>& sources, const CorpusOptions& options, size_t bytes)
    : sources_(sources), options_(options), bytes_(bytes), thread_([this] { read(); }) {}

BatchReader::~BatchReader() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BatchReader::read() {
  std::exception_ptr error;
  try {
    read_corpus(sources_, options_, [&](const CorpusPiece& piece) {
      filling_.add(piece);
      if (filling_.text.size() >= bytes_ || filling_.pieces.size() >= Batch::most_pieces) give();
    });
    if (!filling_.pieces.empty()) give();
  } catch (const Stopped&) {
  } catch (...) {
    error = std::current_exception();
  }
  std::lock_guard lock(mutex_);
  error_ = error, done_ = true;
  changed_.notify_all();
}

void BatchReader::give() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_ || stopped_; });
  if (stopped_) throw Stopped();
  ready_ = std::exchange(filling_, std::exchange(empty_, {}));
  filling_.clear();
  changed_.notify_all();
}

bool BatchReader::next(Batch& batch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_ || done_; });
  if (ready_) {
    empty_ = std::exchange(batch, *std::exchange(ready_, std::nullopt));
    changed_.notify_all();
    return true;
  }
  lock.unlock();
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(error_);
  return false;
}

}  // namespace crest
