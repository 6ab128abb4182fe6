// The limits that a profile's floors are taken against: rates of matrix products by arithmetic, and memory bandwidth.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "profile/profile.h"

namespace crest {

// "bf16=9.9e14,bandwidth=4.8e12", or a device file (device/data_sheet.h: "h200", "mine.toml") for all that it gives;
// later parts win. Usage errors name `where`.
std::vector<ProfileRate> parse_rates(const std::string& text, const std::string& where);

// A rate for each name: as given, else measured, which takes a second each and needs memory of its own. Where no fast
// kernel multiplies a type, its rate is that of fp32.
std::vector<ProfileRate> device_rates(const Device& device, const std::set<std::string>& names,
                                      const std::vector<ProfileRate>& given);

}  // namespace crest
