// Shared by the actions of crest runs.
#pragma once
#include <string>
#include <vector>

#include "store/import_log.h"
#include "store/record_options.h"

namespace crest {

struct RunsOptions {
  std::string action;
  std::vector<std::string> names;  // runs, or files to import
  StoreFile store;
  RunFilter filter;
  LogDescription log;
  int64_t limit = -1;
  bool csv = false, samples = false, all = false, overwrite = false, yes = false, force = false, json = false;
  std::string document, out, columns, tracker, project;
  std::vector<std::string> where;
};

// Adds --where to the filter. Throws for an unknown setting or an impossible value.
void read_where(RunsOptions& options);

int run_export(RunsOptions& options);
int run_import(const RunsOptions& options);

}  // namespace crest
