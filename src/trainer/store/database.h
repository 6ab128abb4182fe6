// A thin layer over SQLite: everything opened is closed, every transaction is committed or rolled
// back, and every error names the file and what to do.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/timer.h"

struct sqlite3;
struct sqlite3_stmt;

namespace crest {

// Another process keeps the file locked.
class StoreBusy : public Error {
 public:
  using Error::Error;
};

// A page or value of the file is damaged, or larger than any written by Crest.
class StoreDamaged : public Error {
 public:
  using Error::Error;
};

// How long to wait for a file locked by another process.
struct Patience {
  double seconds = 5;                     // then StoreBusy is thrown
  std::function<double()> changing = {};  // if set, polled instead of `seconds`
  double notice_after = 1;                // seconds until `notice` reports, once per wait, who holds the lock
  std::function<void(const std::string&)> notice = {};  // default: standard error
};

class Database {
 public:
  // write: creates a missing file; read: it must exist, possibly in a read-only folder.
  enum class Mode { write, read };
  // Regular files only. The contents are data: triggers and views do not run.
  Database(const std::string& file, Mode mode, Patience patience = {});
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Statements without values or results.
  void run(const char* sql);
  // False when another process holds the file.
  bool try_to_run(const char* sql);
  // Waits a moment for another process, for the `attempt`-th time (from 0). False when out of
  // patience, which is soon after a stop request (host/stop_signal.h).
  bool wait(int attempt) noexcept;
  // The first column of the first row.
  int64_t integer(const char* sql);
  // The row id of the last insert.
  int64_t last_id() const;
  // The number of rows changed by the last insert, update or delete.
  int64_t changes() const;
  const std::string& file() const { return file_; }
  // True when nothing can be written: a read-only file, folder or disk.
  bool read_only() const;

  // Throws for an SQLite error code.
  [[noreturn]] void fail_with(int code) const;

 private:
  friend class Statement;
  void open(Mode mode);
  std::string file_;
  Patience patience_;
  Timer waiting_;
  bool told_ = false;
  std::unique_ptr<sqlite3, void (*)(sqlite3*)> handle_;
};

// A prepared statement; values are bound in order.
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
  // Steps to the next row; false at the end, after which values can be bound again.
  bool step();
  // Resets before the end, so values can be bound again.
  Statement& reset();
  // Runs a statement without rows.
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

// Starts as the only writer; rolls back unless committed.
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
