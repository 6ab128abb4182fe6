// The kinds of experiments, a row each. The class of its cells stands in cli/lab_cells.cpp, its columns in columns.cpp.
#pragma once
#include <vector>

namespace crest::lab {

enum class Kind { arithmetic, plan, bench, profile, gemm, train, comm };

struct KindInfo {
  Kind kind;
  const char *name, *cell;  // as files say it; what a cell is, in words
  bool has_cells = true;
  bool timed = false;              // cells have the column ms, and with it a noise floor
  bool instruction_times = false;  // so do the rows of instructions behind a cell
  bool reads_text = false;         // cells take the setting `data`
  bool rounds = false;             // cells are short enough to be set up twice: all once, then all in reverse order
};
const std::vector<KindInfo>& kinds();
const KindInfo& info(Kind);
inline const char* name(Kind kind) { return info(kind).name; }

}  // namespace crest::lab
