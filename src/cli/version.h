#pragma once

namespace crest {
// Crest and every library that is opened, with versions.
void print_versions();
}  // namespace crest
