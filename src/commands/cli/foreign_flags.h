// Flags of other training programs, answered with the name that Crest has for them.
#pragma once
#include <string>
#include <vector>

namespace crest {

// "Crest's name is --lr." for --learning-rate, if the command has that flag (`known`); "": none.
std::string name_here(const std::string& flag, const std::vector<std::string>& known);

}  // namespace crest
