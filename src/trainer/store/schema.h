// The tables of the run database, and the mark of the file.
#pragma once
#include "store/database.h"

namespace crest {

inline constexpr int store_version = 1;

// Creates the tables in an empty file. Throws for a database of another program, of a newer Crest,
// or a damaged one.
void prepare_schema(Database& database, Database::Mode mode);

}  // namespace crest
