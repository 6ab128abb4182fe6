#include "inference/task_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/text.h"
#include "data/file_kind.h"
#include "data/python_text.h"
#include "data/unicode.h"

namespace crest {

namespace {

using JsonValue = nlohmann::json;

constexpr uint64_t max_task_bytes = uint64_t(1) << 30;

// A line's object; errors name its place.
class Row {
 public:
  Row(const JsonValue& json, std::string place) : json_(json), place_(std::move(place)) {}
  std::string text(const char* key) const { return text_of(at(key), key); }
  std::vector<std::string> texts(const char* key) const { return texts_of(at(key), key); }
  std::vector<std::string> texts(const char* key, const char* inner) const {
    const JsonValue& object = at(key);
    const std::string both = fmt::format("{}.{}", key, inner);
    if (!object.is_object() || !object.contains(inner)) fail(fmt::format("there is no '{}'", both), place_);
    return texts_of(object[inner], both);
  }
  // The answer's number from `first` on, as a number or a text.
  size_t answer(const char* key, int64_t first, size_t choices) const {
    const JsonValue& value = at(key);
    int64_t number = 0;
    if (value.is_string()) {
      const std::string text = value.get<std::string>();
      if (text.empty()) no_answer(key, "empty");
      auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc() || end != text.data() + text.size())
        fail(fmt::format("'{}' is '{}', not the number of a choice", key, printable(text)), place_);
    } else if (value.is_number_integer()) {
      number = value.get<int64_t>();
    } else if (value.is_null()) {
      no_answer(key, "null");
    } else {
      fail(fmt::format("'{}' is not the number of a choice", key), place_);
    }
    if (number == -1) no_answer(key, "-1");
    if (number < first || number - first >= int64_t(choices))
      fail(fmt::format("'{}' is {}, but the choices are {} to {}", key, number, first, first + int64_t(choices) - 1),
           place_);
    return size_t(number - first);
  }
  [[noreturn]] void no_answer(const char* key, const char* what) const {
    fail(fmt::format("there is no answer: '{}' is {}", key, what), place_,
         "Use a split with answers: those of test splits are often secret. validation has them.");
  }
  const std::string& place() const { return place_; }

 private:
  const JsonValue& at(const char* key) const {
    if (!json_.contains(key)) fail(fmt::format("there is no '{}'", key), place_);
    return json_[key];
  }
  std::string text_of(const JsonValue& value, const std::string& key) const {
    if (!value.is_string()) fail(fmt::format("'{}' is not a text", key), place_);
    return value.get<std::string>();
  }
  std::vector<std::string> texts_of(const JsonValue& value, const std::string& key) const {
    if (!value.is_array() || value.size() < 2)
      fail(fmt::format("'{}' is not a list of two or more texts", key), place_);
    std::vector<std::string> out;
    for (const JsonValue& one : value) out.push_back(text_of(one, fmt::format("{}[{}]", key, out.size())));
    return out;
  }
  const JsonValue& json_;
  std::string place_;
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// re.sub(r"\[.*?\]", "", text): a dot is no line feed.
std::string without_brackets(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t end = text[i] == '[' ? text.find_first_of("]\n", i) : std::string_view::npos;
    if (end != std::string_view::npos && text[end] == ']')
      i = end + 1;
    else
      out += text[i++];
  }
  return out;
}

// Of the harness: brackets are left over from WikiHow.
std::string cleaned(std::string_view text) {
  std::string out(strip(text));
  replace_all(out, " [title]", ". ");
  out = without_brackets(out);
  replace_all(out, "  ", " ");
  return out;
}

// A context with its choices, a space between them.
void set_choices(TaskItem& item, const std::string& context, std::vector<std::string> choices) {
  for (const std::string& c : choices) item.texts.push_back({context, " " + c});
  item.choices = std::move(choices);
}

TaskItem hellaswag(const Row& row) {
  TaskItem item;
  const std::string context = row.text("ctx_a") + " " + capitalize(row.text("ctx_b"));
  std::vector<std::string> endings = row.texts("endings");
  for (std::string& ending : endings) ending = cleaned(ending);
  item.answer = row.answer("label", 0, endings.size());
  set_choices(item, cleaned(row.text("activity_label") + ": " + context), std::move(endings));
  return item;
}

std::string question(const std::string& text) { return "Question: " + text + "\nAnswer:"; }

TaskItem arc(const Row& row) {
  TaskItem item;
  const std::string key = row.text("answerKey");
  if (key.empty()) row.no_answer("answerKey", "empty");
  const std::vector<std::string> labels = row.texts("choices", "label");
  std::vector<std::string> texts = row.texts("choices", "text");
  if (labels.size() != texts.size())
    fail(fmt::format("'choices' has {} labels for {} texts", labels.size(), texts.size()), row.place());
  const auto found = std::find(labels.begin(), labels.end(), key);
  if (found == labels.end())
    fail(fmt::format("'answerKey' is '{}', which is none of the labels", printable(key)), row.place());
  item.answer = size_t(found - labels.begin());
  set_choices(item, question(row.text("question")), std::move(texts));
  return item;
}

TaskItem piqa(const Row& row) {
  TaskItem item;
  item.answer = row.answer("label", 0, 2);
  set_choices(item, question(row.text("goal")), {row.text("sol1"), row.text("sol2")});
  return item;
}

// The end of the sentence is scored, behind both options.
TaskItem winogrande(const Row& row) {
  TaskItem item;
  const std::string sentence = row.text("sentence");
  const size_t gap = sentence.find('_');
  if (gap == std::string::npos) fail("'sentence' has no '_'", row.place());
  item.answer = row.answer("answer", 1, 2);
  const std::string end = " " + std::string(strip(std::string_view(sentence).substr(gap + 1)));
  for (const char* option : {"option1", "option2"}) {
    item.choices.push_back(sentence.substr(0, gap) + row.text(option));
    item.texts.push_back({item.choices.back(), end});
  }
  return item;
}

struct TaskLayout {
  const char* name;
  std::vector<const char*> fields;
  bool normalized;
  TaskItem (*item)(const Row&);
};

const std::vector<TaskLayout>& task_layouts() {
  static const std::vector<TaskLayout> all = {
      {"hellaswag", {"activity_label", "ctx_a", "ctx_b", "endings", "label"}, true, hellaswag},
      {"arc", {"question", "choices", "answerKey"}, true, arc},
      {"piqa", {"goal", "sol1", "sol2", "label"}, true, piqa},
      {"winogrande", {"sentence", "option1", "option2", "answer"}, false, winogrande}};
  return all;
}

// The layout with all fields in the object; without one, an error lists both sides.
const TaskLayout& task_layout_of(const JsonValue& json, const std::string& place) {
  for (const TaskLayout& layout : task_layouts())
    if (std::all_of(layout.fields.begin(), layout.fields.end(), [&](const char* f) { return json.contains(f); }))
      return layout;
  std::vector<std::string> known, seen;
  for (const TaskLayout& layout : task_layouts())
    known.push_back(fmt::format("{} ({})", layout.name, join({layout.fields.begin(), layout.fields.end()}, ", ")));
  for (auto& [key, value] : json.items()) seen.push_back("'" + printable(key, 40) + "'");
  if (seen.size() > 20) seen.resize(20), seen.push_back("...");
  fail(seen.empty() ? "the object has no fields" : "these fields belong to no known task: " + join(seen, ", "), place,
       "Known tasks: " + join(known, "; ") + ".");
}

std::string task_name_of(const std::string& file) {
  std::string name = file.substr(file.rfind('/') + 1);
  const size_t end = name.find('.', 1);
  return end == std::string::npos ? name : name.substr(0, end);
}

}  // namespace

Task parse_task(std::string_view lines, const std::string& file, int64_t limit) {
  const char* form = "Each line is a question as a JSON object.";
  Task task;
  task.name = task_name_of(file), task.file = file;
  const TaskLayout* layout = nullptr;
  const std::string where = printable(file);
  size_t line = 0;
  for (size_t start = 0; start < lines.size() && (limit == 0 || int64_t(task.items.size()) < limit); ++line) {
    const size_t end = std::min(lines.find('\n', start), lines.size());
    const std::string_view text = lines.substr(start, end - start);
    start = end + 1;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = place_of_line(where, line);
    const JsonValue json = parse_line(text, place, form);
    if (!json.is_object()) fail("the line is not an object", place, form);
    if (!layout) layout = &task_layout_of(json, place);
    TaskItem& item = task.items.emplace_back(layout->item(Row(json, place)));
    item.line = line;
  }
  if (!layout) fail("there are no questions", where, form);
  task.layout = layout->name, task.normalized = layout->normalized;
  return task;
}

Task read_task(const std::string& file, int64_t limit) {
  const std::string lines = read_file(file, max_task_bytes);
  if (auto other = not_text(std::string_view(lines).substr(0, kind_bytes), {}, file))
    fail("this is " + other->what, printable(file),
         "Convert it to JSON lines in Python: datasets.load_dataset(NAME, split='validation').to_json('task.jsonl').");
  return parse_task(lines, file, limit);
}

}  // namespace crest
