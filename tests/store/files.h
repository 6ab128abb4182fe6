// Shared by the tests of the run store: a temporary
// folder, records, and SQLite without the Store.
#pragma once
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "core/error.h"
#include "memory_folder.h"
#include "store/store.h"

namespace crest::test {

class Folder : public MemoryFolder {
 public:
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(*this / name, std::ios::binary) << content;
    return *this / name;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(*this / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::filesystem::path path() const { return MemoryFolder::path(); }
};

inline RunRecord bench_record(const std::string& name = "", int64_t batch = 8) {
  RunRecord r;
  r.kind = "bench", r.name = name, r.phase = "step", r.command = "crest bench --batch " + std::to_string(batch);
  r.recipe = {{"model", "nano"},      {"batch", batch}, {"seq", 256},         {"precision", "bf16"},
              {"attention", "flash"}, {"fusion", "on"}, {"recompute", "none"}};
  r.device = {{"kind", "cpu"}, {"name", "Test CPU"}, {"threads", 2}, {"isa", "avx2"}};
  r.environment = {{"load_average", 0.5}};
  return r;
}

// The exception of the call, as text; a failure of the test without one.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

inline void expect_says(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in:\n" << text;
}

// Statements on the file itself, as the sqlite3 program runs them; the first column of the last row
// as text.
inline std::string raw_sql(const std::string& file, const std::string& sql) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open(file.c_str(), &db), SQLITE_OK);
  std::string last;
  char* message = nullptr;
  int code = sqlite3_exec(
      db, sql.c_str(),
      [](void* out, int, char** values, char**) {
        *static_cast<std::string*>(out) = values[0] ? values[0] : "NULL";
        return 0;
      },
      &last, &message);
  EXPECT_EQ(code, SQLITE_OK) << sql << ": " << (message ? message : "");
  sqlite3_free(message);
  sqlite3_close(db);
  return last;
}

}  // namespace crest::test
