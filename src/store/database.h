// A thin layer over SQLite: what is opened is closed, what is begun is committed or rolled back, and every error says
// which file and what to do.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace crest {

class Database {
 public:
  // write: the file is created when it is missing; read: it must exist, and may lie in a folder that nobody may write.
  enum class Mode { write, read };
  // Only regular files. Waits for other processes for up to `patience` seconds.
  Database(const std::string& file, Mode mode, double patience = 60);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Statements without values or results.
  void run(const char* sql);
  // False when another process keeps the file busy.
  bool try_to_run(const char* sql);
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
  void open(Mode mode, double patience);
  std::string file_;
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
  // For statements without rows.
  void run();

  int64_t integer(int column) const;
  double real(int column) const;  // NaN for NULL
  std::string text(int column) const;
  bool is_null(int column) const;

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
