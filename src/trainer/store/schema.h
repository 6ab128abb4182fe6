// The tables of the run database, and the mark of the file.
#pragma once
#include "store/database.h"

namespace crest {

// 2: the log has times and the device's state, and log_summary. Format 1 is read, and brought to 2
// when it is opened for writing.
inline constexpr int store_version = 2;

// Creates the tables in an empty file. Throws for a database of another program, of a newer Crest,
// or a damaged one.
void prepare_schema(Database& database, Database::Mode mode);

}  // namespace crest
