// What the actions of crest runs share.
#pragma once
#include <string>
#include <vector>

#include "cli/store_options.h"
#include "store/import_log.h"

namespace crest {

struct RunsOptions {
  std::string action;
  std::vector<std::string> names;  // runs, or files of import
  StoreFile store;
  RunFilter filter;
  LogDescription log;
  int64_t limit = -1;
  bool csv = false, samples = false, all = false, overwrite = false, yes = false, force = false, json = false;
  std::string document, out;
};

// Throws for a filter that can match nothing: an unknown kind, a time that is none.
void check_filter(const RunFilter& filter);
// Whether it leaves runs out.
bool is_filtered(const RunFilter& filter);

int run_export(RunsOptions& options);
int run_import(const RunsOptions& options);

}  // namespace crest
