// Tables of the run database and what marks a file as one.
#pragma once
#include "store/database.h"

namespace crest {

inline constexpr int store_version = 1;

// Makes the tables in an empty file; throws for a database of another program, of a newer Crest, or a damaged one.
void prepare_schema(Database& database, Database::Mode mode);

}  // namespace crest
