#include "store/database.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <thread>

#include "core/error.h"
#include "core/io.h"
#include "core/text.h"
#include "core/to_stderr.h"
#include "host/file_lock.h"
#include "host/stop_signal.h"

namespace crest {

namespace {

constexpr int largest_value = 512 << 20;   // bytes per text
constexpr double stopping_patience = 0.5;  // seconds, after a stop request

void close_handle(sqlite3* handle) { sqlite3_close_v2(handle); }

// Checks before SQLite opens the file: it would wait for the writer of a pipe, and read a device.
void check_regular(const std::string& file, Database::Mode mode) {
  struct stat info;
  if (::stat(file.c_str(), &info) != 0) {
    int code = errno;
    if (code == ENOENT && mode == Database::Mode::write) {
      std::string folder = parent_path(file);
      if (!is_directory(folder)) fail("no such folder", printable(folder), "Create it, or give another --store FILE.");
      return;
    }
    if (code == ENOENT)
      fail("no run database", printable(file),
           "crest bench, profile and train record runs; name the file with --store FILE or CREST_STORE.");
    fail(std::strerror(code), printable(file), "Check the path of --store.");
  }
  if (S_ISDIR(info.st_mode)) fail("is a folder, not a run database", printable(file), "--store names a file.");
  if (!S_ISREG(info.st_mode)) fail("is not a regular file", printable(file), "--store names a file.");
  if (info.st_size == 0 && mode == Database::Mode::read)
    fail("is empty, not a run database", printable(file), "Check the path of --store.");
}

// The path as a URI of an immutable database: it needs neither locks nor side files.
std::string immutable_uri(const std::string& file) {
  std::string uri = "file:";
  for (unsigned char c : file)
    if (std::isalnum(c) || c == '/' || c == '.' || c == '-' || c == '_')
      uri += char(c);
    else
      uri += fmt::format("%{:02X}", c);
  return uri + "?immutable=1";
}

bool has_wal(const std::string& file) {
  struct stat info;
  return ::stat((file + "-wal").c_str(), &info) == 0 && info.st_size > 0;
}

}  // namespace

void Database::open(Mode mode) {
  // An absolute path is never mistaken for ":memory:" or a URI.
  std::error_code error;
  std::string path = std::filesystem::absolute(file_, error).string();
  sqlite3* handle = nullptr;
  auto use = [&](const std::string& name, int flags) {
    int code = sqlite3_open_v2(name.c_str(), &handle, flags | SQLITE_OPEN_EXRESCODE, nullptr);
    handle_.reset(handle);
    if (code != SQLITE_OK) return code;
    sqlite3_busy_handler(
        handle, [](void* self, int attempt) { return int(static_cast<Database*>(self)->wait(attempt)); }, this);
    sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, largest_value);
    // The file may be untrusted: its triggers and views do not run, and its pages are checked.
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
    sqlite3_exec(handle, "PRAGMA cell_size_check = ON", nullptr, nullptr, nullptr);
    return sqlite3_exec(handle, "SELECT count(*) FROM sqlite_schema", nullptr, nullptr, nullptr);
  };
  int code = use(path, SQLITE_OPEN_READWRITE | (mode == Mode::write ? SQLITE_OPEN_CREATE : 0));
  int kind = code & 0xff;
  // A write-ahead database needs a side file even for reading.
  if (mode == Mode::read && (kind == SQLITE_CANTOPEN || kind == SQLITE_READONLY || kind == SQLITE_PERM)) {
    if (has_wal(path))
      fail("cannot be read: its newest changes are in its -wal file, and the folder is not writable", printable(file_),
           fmt::format("Copy it and {}-wal to a writable folder.", printable(file_)));
    code = use(immutable_uri(path), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
  }
  if (code != SQLITE_OK) fail_with(code);
}

Database::Database(const std::string& file, Mode mode, Patience patience)
    : file_(file), patience_(std::move(patience)), handle_(nullptr, close_handle) {
  check_regular(file, mode);
  open(mode);
}

static std::string holder_of(const std::string& file) {
  std::string holder = lock_holder({file, file + "-shm"});
  return holder.empty() ? "another process" : holder;
}

// Called by SQLite, so no exception may escape.
bool Database::wait(int attempt) noexcept {
  if (attempt == 0) waiting_ = {}, told_ = false;
  double waited = waiting_.seconds();
  double limit = patience_.changing ? patience_.changing() : patience_.seconds;
  if (waited >= (StopSignal::requested() ? std::min(limit, stopping_patience) : limit)) return false;
  if (waited >= patience_.notice_after && !told_) {
    told_ = true;
    try {
      std::string text = fmt::format("the run database {} is locked by {}; waiting up to {:g} s", printable(file_),
                                     holder_of(file_), limit);
      if (patience_.notice)
        patience_.notice(text);
      else
        to_stderr("crest: {}\n", text);
    } catch (const std::exception&) {  // a failed notice is not an error
    }
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(std::clamp(attempt, 1, 25)));
  return true;
}

Database::~Database() = default;

void Database::fail_with(int code) const {
  std::string where = printable(file_);
  std::string reason = handle_ ? sqlite3_errmsg(handle_.get()) : sqlite3_errstr(code);
  switch (code & 0xff) {
    case SQLITE_NOTADB: fail("is not a run database", where, "Check the path of --store; nothing was changed.");
    case SQLITE_CORRUPT:
      throw StoreDamaged(
          Exit::failed, fmt::format("the run database is damaged ({})", reason), where,
          "Recover readable data with: sqlite3 FILE .recover | sqlite3 NEW. Or start a new one with --store.");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:  // busy beyond SQLite's patience
      throw StoreBusy(Exit::failed, fmt::format("{} keeps the run database locked", holder_of(file_)), where,
                      "Wait for it or stop it, give another --store FILE, or wait longer (--store-wait).");
    case SQLITE_FULL: fail("the disk is full", where, "Free some space, or give another --store FILE.");
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      fail(fmt::format("cannot be opened for writing ({})", reason), where,
           "The file and its folder must be writable; or give another --store FILE.");
    case SQLITE_IOERR:
      fail(fmt::format("reading or writing failed ({})", reason), where,
           "Check the disk and its free space, or give another --store FILE.");
    case SQLITE_NOMEM: throw std::bad_alloc();
    case SQLITE_TOOBIG:
      throw StoreDamaged(
          Exit::failed,
          fmt::format("a text of more than {} cannot be stored or read", format_bytes(double(largest_value))), where);
    default: fail(fmt::format("SQLite: {} (code {})", reason, code), where);
  }
}

bool Database::try_to_run(const char* sql) {
  int code = sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr);
  if ((code & 0xff) == SQLITE_BUSY || (code & 0xff) == SQLITE_PROTOCOL) return false;
  if (code != SQLITE_OK) fail_with(code);
  return true;
}

void Database::run(const char* sql) {
  if (!try_to_run(sql)) fail_with(SQLITE_BUSY);
}

int64_t Database::integer(const char* sql) {
  Statement statement(*this, sql);
  return statement.step() ? statement.integer(0) : 0;
}

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(handle_.get()); }
int64_t Database::changes() const { return sqlite3_changes64(handle_.get()); }
bool Database::read_only() const { return sqlite3_db_readonly(handle_.get(), "main") == 1; }

Statement::Statement(Database& database, std::string_view sql) : database_(database) {
  check(sqlite3_prepare_v2(database.handle_.get(), sql.data(), int(sql.size()), &statement_, nullptr));
}

Statement::~Statement() { sqlite3_finalize(statement_); }

void Statement::check(int code) const {
  if (code != SQLITE_OK) database_.fail_with(code);
}

Statement& Statement::add(int64_t value) {
  check(sqlite3_bind_int64(statement_, ++bound_, value));
  return *this;
}

Statement& Statement::add(double value) {
  check(sqlite3_bind_double(statement_, ++bound_, value));  // stores NaN as NULL
  return *this;
}

Statement& Statement::add(std::string_view text) {
  const char* data = text.data() ? text.data() : "";  // a null pointer would be NULL
  check(sqlite3_bind_text64(statement_, ++bound_, data, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

Statement& Statement::add_null() {
  check(sqlite3_bind_null(statement_, ++bound_));
  return *this;
}

bool Statement::step() {
  int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  bound_ = 0;
  sqlite3_reset(statement_);
  if (code != SQLITE_DONE) database_.fail_with(code);
  return false;
}

Statement& Statement::reset() {
  sqlite3_reset(statement_);
  bound_ = 0;
  return *this;
}

void Statement::run() {
  while (step()) {
  }
}

int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

double Statement::real(int column) const { return is_null(column) ? NAN : sqlite3_column_double(statement_, column); }

std::string Statement::text(int column) const {
  auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return text ? std::string(text, size_t(sqlite3_column_bytes(statement_, column))) : std::string();
}

const char* Statement::type(int column) const {
  switch (sqlite3_column_type(statement_, column)) {
    case SQLITE_INTEGER: return "integer";
    case SQLITE_FLOAT: return "number";
    case SQLITE_TEXT: return "text";
    case SQLITE_BLOB: return "blob";
    default: return "null";
  }
}

int64_t Statement::bytes(int column) const { return sqlite3_column_bytes(statement_, column); }

bool Statement::is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

Transaction::Transaction(Database& database) : database_(database) { database.run("BEGIN IMMEDIATE"); }

Transaction::~Transaction() {
  if (!open_) return;
  try {
    database_.run("ROLLBACK");
  } catch (const std::exception&) {  // SQLite has already rolled back
  }
}

void Transaction::commit() {
  database_.run("COMMIT");
  open_ = false;
}

}  // namespace crest
