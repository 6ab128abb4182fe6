#include "profile/kernel_name.h"

#include <string_view>

namespace crest {

std::string short_kernel(std::string name) {
  if (name.starts_with("void ")) name.erase(0, 5);
  for (const char* noise : {"crest::cuda::", "crest::", "(anonymous namespace)::"})
    for (size_t at; (at = name.find(noise)) != std::string::npos;) name.erase(at, std::string_view(noise).size());
  if (size_t open = name.find('('); open != std::string::npos && open > 0) name.erase(open);
  return name;
}

}  // namespace crest
