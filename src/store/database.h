// A thin layer over SQLite: what is opened is closed, what is begun is committed or rolled back, and every error says
// which file and what to do.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace crest {

// Another process keeps the file locked.
class StoreBusy : public Error {
 public:
  using Error::Error;
};

// A page or a value of the file is damaged, or larger than any that Crest writes.
class StoreDamaged : public Error {
 public:
  using Error::Error;
};

// How long a file that another process keeps locked is waited for.
struct Patience {
  double seconds = 5;                     // then it is an error (StoreBusy)
  std::function<double()> changing = {};  // where set, it is asked instead of `seconds`, again and again
  double notice_after = 1;                // seconds after which `notice` is told, once a wait, who is waited for
  std::function<void(const std::string&)> notice = {};  // standard error unless said otherwise
};

class Database {
 public:
  // write: the file is created when it is missing; read: it must exist, and may lie in a folder that nobody may write.
  enum class Mode { write, read };
  // Only regular files. What the file says is data: its triggers and views do not run.
  Database(const std::string& file, Mode mode, Patience patience = {});
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Statements without values or results.
  void run(const char* sql);
  // False when another process keeps the file busy.
  bool try_to_run(const char* sql);
  // Waits a moment for another process, the `attempt`-th time (from 0); false when patience is over, which is soon once
  // the process was asked to stop (host/stop_signal.h).
  bool wait(int attempt) noexcept;
  // First column of the first row of a query that has one.
  int64_t integer(const char* sql);
  // Of the last insert.
  int64_t last_id() const;
  // Rows that the last insert, update or delete touched.
  int64_t changes() const;
  const std::string& file() const { return file_; }
  // True when nothing can be written: a read-only file, folder or disk.
  bool read_only() const;

  // Throws for a result code of SQLite.
  [[noreturn]] void fail_with(int code) const;

 private:
  friend class Statement;
  void open(Mode mode);
  std::string file_;
  Patience patience_;
  std::chrono::steady_clock::time_point waiting_since_;
  bool told_ = false;
  std::unique_ptr<sqlite3, void (*)(sqlite3*)> handle_;
};

// A prepared statement; its texts and numbers are bound in order.
class Statement {
 public:
  Statement(Database& database, std::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& add(int64_t value);
  Statement& add(int value) { return add(int64_t(value)); }
  Statement& add(double value);  // NaN becomes NULL
  Statement& add(std::string_view text);
  Statement& add_null();
  // The next row; false at the end, after which values can be bound again.
  bool step();
  // Values can be bound again before the end.
  Statement& reset();
  // For statements without rows.
  void run();

  int64_t integer(int column) const;
  double real(int column) const;  // NaN for NULL
  std::string text(int column) const;
  bool is_null(int column) const;
  // "integer", "number", "text", "blob", "null".
  const char* type(int column) const;
  int64_t bytes(int column) const;  // of a text or blob

 private:
  void check(int code) const;
  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

// Begins as the only writer; rolls back unless committed.
class Transaction {
 public:
  explicit Transaction(Database& database);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace crest
