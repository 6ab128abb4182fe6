// The pages of crest watch: recorded and running training runs, read from the run database. Nothing
// here writes.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/store.h"
#include "watch/server.h"

namespace crest {

// GET /                       the page
// GET /api/runs               runs with a log, newest first
// GET /api/curves?run=ID...   their curves (store/summary.h)
// GET /api/samples?run=ID     texts sampled during training
// GET /report?run=ID...       crest report
// GET /compare?run=A&run=B    crest compare
class WatchPages {
 public:
  // runs: the first ones shown; none: the newest.
  explicit WatchPages(const std::string& store, std::vector<int64_t> runs = {});
  // Called by several threads.
  HttpResponse answer(const HttpRequest& request);

 private:
  HttpResponse page() const;
  HttpResponse list();
  HttpResponse curves(const HttpRequest& request);
  HttpResponse samples(const HttpRequest& request);
  HttpResponse report(const HttpRequest& request) const;
  HttpResponse compare(const HttpRequest& request) const;

  std::string file_, nonce_;
  std::vector<int64_t> first_runs_;
  std::mutex mutex_;  // guards the members below
  Store store_;
};

}  // namespace crest
