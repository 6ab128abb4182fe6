// The limits behind a profile's floors: matmul rates by precision, memory bandwidth, host link.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "device/data_sheet.h"
#include "profile/profile.h"

namespace crest {

// "bf16=9.9e14,bandwidth=4.8e12", or a device file (device/data_sheet.h: "h200", "mine.toml") for
// all its rates. Later parts win. Usage errors name `where`.
std::vector<ProfileRate> parse_rates(const std::string& text, const std::string& where);

// All rates in the sheet.
std::vector<ProfileRate> sheet_rates(const DataSheet& sheet);

// A rate for each name: given, or measured in about a second with some memory. A type without a
// fast kernel gets the rate of fp32.
std::vector<ProfileRate> device_rates(const Device& device, const std::set<std::string>& names,
                                      const std::vector<ProfileRate>& given);

}  // namespace crest
