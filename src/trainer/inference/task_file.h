// Files of multiple-choice tasks, with the prompts of lm-evaluation-harness.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inference/score_model.h"

namespace crest {

// A question: the most probable of its texts should be the one with number `answer`.
struct TaskItem {
  std::vector<ScoredText> texts;     // a choice each
  std::vector<std::string> choices;  // their lengths normalize
  size_t answer = 0;
  size_t line = 0;  // in the file, from 0
};

struct Task {
  std::string name;         // of the file, without its ending
  std::string file;         // as given
  std::string layout;       // hellaswag, arc, piqa, winogrande
  bool normalized = false;  // the accuracy by length makes sense: the choices are the continuations
  std::vector<TaskItem> items;
};

// A file of JSON lines in the form of the data set on the Hugging Face hub. Its fields tell the
// layout. limit: only the first items (0: all). Throws with file, line and reason for a line of
// another form, and for one without an answer.
Task read_task(const std::string& file, int64_t limit);
// The same of a text; `file` names it.
Task parse_task(std::string_view lines, const std::string& file, int64_t limit);

}  // namespace crest
