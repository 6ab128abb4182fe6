#include "data/parquet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/io.h"
#include "core/json.h"
#include "core/shell_word.h"
#include "core/text.h"
#include "host/child.h"
#include "host/external.h"

namespace crest {

namespace {

// Writes the number of rows. Then for some rows each: their number, the number of nulls and of
// bytes, the nulls' rows, where texts begin and end, and the texts. All numbers are int64. Problems
// go to standard error, as JSON.
constexpr const char* reader = R"python(
import sys
sys.path[:] = [folder for folder in sys.path if folder]  # no modules from the working folder
import json, struct

def refuse(**problem):
    sys.stderr.write("crest:" + json.dumps(problem) + "\n")
    sys.stderr.flush()
    sys.exit(3)

try:
    import pyarrow, pyarrow.parquet
except ImportError as error:
    refuse(kind="import", error=str(error))

path, column = sys.argv[1:3]
out = sys.stdout.buffer
is_text = [getattr(pyarrow.types, name) for name in ("is_string", "is_large_string", "is_string_view")
           if hasattr(pyarrow.types, name)]
try:
    file = pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
    names = file.schema_arrow.names
    if names.count(column) != 1:
        refuse(kind="column", count=names.count(column), names=names)
    type = file.schema_arrow.field(column).type
    value = type.value_type if pyarrow.types.is_dictionary(type) else type
    if not any(test(value) for test in is_text):
        refuse(kind="type", type=str(type))
    out.write(struct.pack("<q", file.metadata.num_rows))
    for batch in file.iter_batches(batch_size=256, columns=[column], use_threads=False):
        texts = batch.column(0).cast(pyarrow.large_string())
        if len(texts) == 0:
            continue
        nulls = [i for i, null in enumerate(texts.is_null().to_pylist()) if null] if texts.null_count else []
        _, offsets, data = texts.buffers()
        ends = memoryview(offsets).cast("B").cast("q")[texts.offset:texts.offset + len(texts) + 1]
        begin, end = ends[0], ends[len(texts)]
        out.write(struct.pack("<3q", len(texts), len(nulls), end - begin))
        out.write(struct.pack("<%dq" % len(nulls), *nulls))
        out.write(ends)
        if end > begin:
            out.write(memoryview(data)[begin:end])
    out.flush()
except (pyarrow.ArrowException, OSError) as error:
    refuse(kind="file", error=str(error))
)python";

constexpr int64_t most_rows = 1 << 16, most_bytes = int64_t(16) << 30;

std::string interpreter() {
  const char* named = std::getenv("CREST_PYTHON");
  return named && *named ? named : "python3";
}

class Reading {
 public:
  Reading(const std::string& path, std::string name, std::string column, const std::function<void()>& waiting)
      : python_(interpreter()), name_(std::move(name)), column_(std::move(column)), waiting_(waiting) {
    try {
      child_.emplace(python_, std::vector<std::string>{python_, "-c", reader, path, column_});
    } catch (const CannotStart& e) {
      fail(fmt::format("Parquet files are read by Python with pyarrow, but {}",
                       e.missing() ? fmt::format("there is no {}", printable(python_)) : e.problem()),
           printable(name_),
           fmt::format("Install Python 3, then: {}. CREST_PYTHON names another interpreter.", install("python3")));
    }
  }

  uint64_t rows() { return uint64_t(number()); }

  // The next rows; false: there are none left.
  bool next() {
    int64_t sizes[3];
    const size_t got = child_->read(sizes, sizeof sizes, waiting_);
    if (got == 0) {
      end();
      return false;
    }
    const auto [rows, nulls, bytes] = sizes;
    if (got < sizeof sizes || rows < 1 || rows > most_rows || nulls < 0 || nulls > rows || bytes < 0 ||
        bytes > most_bytes)
      fail_output();
    nulls_.resize(size_t(nulls)), ends_.resize(size_t(rows) + 1), texts_.resize(size_t(bytes));
    fill(nulls_.data(), nulls_.size() * sizeof nulls_[0]);
    fill(ends_.data(), ends_.size() * sizeof ends_[0]);
    fill(texts_.data(), texts_.size());
    const int64_t begin = ends_[0];
    int64_t last = 0;
    for (int64_t& end : ends_) {
      end -= begin;
      if (end < last || end > bytes) fail_output();
      last = end;
    }
    return true;
  }
  size_t count() const { return ends_.size() - 1; }
  bool is_null(size_t i) const { return std::find(nulls_.begin(), nulls_.end(), int64_t(i)) != nulls_.end(); }
  std::string_view text(size_t i) const {
    return std::string_view(texts_).substr(size_t(ends_[i]), size_t(ends_[i + 1] - ends_[i]));
  }

 private:
  static std::string install(const std::string& python) {
    return fmt::format("{} -m pip install pyarrow", shell_word(python));
  }

  int64_t number() {
    int64_t n = 0;
    fill(&n, sizeof n);
    return n;
  }

  void fill(void* to, size_t bytes) {
    if (child_->read(to, bytes, waiting_) == bytes) return;
    end();
    fail_output();
  }

  // Throws unless Python has ended without an error.
  void end() {
    const ChildStream::End end = child_->wait();
    if (end.exit_code == 0) return;
    const size_t mark = end.err.rfind("crest:{");
    if (end.exit_code == 3 && mark != std::string::npos) refuse(end.err.substr(mark + 6));
    fail(fmt::format("{} failed with exit code {} while it read the Parquet file", printable(python_), end.exit_code),
         printable(name_), "Its last messages:" + last_lines(end.err, 5));
  }

  [[noreturn]] void fail_output() const {
    fail(fmt::format("{} printed something other than the rows of the Parquet file", printable(python_)),
         printable(name_), "CREST_PYTHON must name a Python interpreter.");
  }

  [[noreturn]] void refuse(const std::string& text) const {
    const nlohmann::json problem = parse_json_guarded(text, {}, "Python's message");
    const std::string kind = problem.value("kind", ""), error = printable(problem.value("error", ""), 500);
    const std::string where = fmt::format("{}, column \"{}\"", printable(name_), printable(column_));
    if (kind == "import")
      fail(fmt::format("reading Parquet files needs pyarrow, which {} does not have ({})", printable(python_), error),
           printable(name_),
           fmt::format("Install it: {}. Or set CREST_PYTHON to an interpreter that has it.", install(python_)));
    if (kind == "column") {
      std::vector<std::string> names;
      for (auto& name : problem.value("names", nlohmann::json::array()))
        names.push_back(printable(name.get<std::string>()));
      const int count = problem.value("count", 0);
      fail(count ? fmt::format("the file has {} columns of this name", count) : "the file has no such column", where,
           fmt::format("Its columns: {}. --text-key chooses the column of the text.",
                       names.empty() ? "none" : join(names, ", ")));
    }
    if (kind == "type")
      fail(fmt::format("the column holds {}, not strings", printable(problem.value("type", ""), 200)), where,
           "Choose a column of strings with --text-key. Nested columns, such as conversations, must be written as "
           "JSON lines first.");
    fail("pyarrow cannot read the file: " + error, printable(name_), "Download or write it again.");
  }

  const std::string python_, name_, column_;
  const std::function<void()>& waiting_;
  std::optional<ChildStream> child_;
  std::vector<int64_t> nulls_, ends_{0};  // ends_: where each text begins, and the end of the last one
  std::string texts_;
};

}  // namespace

bool is_parquet(const std::string& path) {
  constexpr size_t n = parquet_mark.size();
  const File file = File::open_read(path);
  const uint64_t size = file.size();
  if (size < 3 * n) return false;
  std::string first(n, '\0'), last(n, '\0');
  file.read_at(first.data(), n, 0);
  file.read_at(last.data(), n, size - n);
  return first == parquet_mark && last == parquet_mark;
}

void read_parquet(const std::string& path, const std::string& name, const std::string& column, BadLines* bad_lines,
                  const std::function<void()>& waiting,
                  const std::function<void(std::string_view, uint64_t, uint64_t)>& use) {
  Reading reading(path, name, column, waiting);
  const uint64_t rows = reading.rows();
  uint64_t row = 0;
  while (reading.next())
    for (size_t i = 0; i < reading.count(); ++i) {
      ++row;
      if (!reading.is_null(i)) {
        use(reading.text(i), row, rows);
        continue;
      }
      const BadLine bad("the row has no text (null)",
                        fmt::format("{}, row {}, column \"{}\"", printable(name), row, printable(column)),
                        "Remove such rows.");
      if (!bad_lines) throw bad;
      bad_lines->skip(bad);
    }
  if (row != rows)
    fail(fmt::format("the file has {} rows, but only {} could be read", rows, row), printable(name),
         "Download or write it again.");
}

}  // namespace crest
