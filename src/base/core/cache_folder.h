// The folder for files that Crest can make again.
#pragma once
#include <string>

namespace crest {

// $CREST_CACHE, else $XDG_CACHE_HOME/crest, else $HOME/.cache/crest. An empty variable, and (as the
// XDG specification says) a relative $XDG_CACHE_HOME, are treated as unset. Empty if none is set.
std::string cache_folder();

}  // namespace crest
