// Where files lie that can be made again.
#pragma once
#include <string>

namespace crest {

// $CREST_CACHE, else $XDG_CACHE_HOME/crest, else $HOME/.cache/crest. A variable that is empty, and (as the XDG
// specification says) a relative $XDG_CACHE_HOME, count as not set. Empty when none is.
std::string cache_folder();

}  // namespace crest
