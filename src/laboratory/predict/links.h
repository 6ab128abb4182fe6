// --link: the links between GPUs of a node, and between nodes.
#pragma once
#include <string>

#include "device/data_sheet.h"

namespace crest {

// "nvlink,400Gb": first inside a node ("nvlink": as the sheet has it; "pcie": the link to the host;
// or a rate), then between nodes (a rate). One rate alone is between nodes. Rates are of one GPU in
// one direction, in Gb or GB per second. Usage errors name --link.
struct Links {
  bool in_node = false;  // the link inside a node is not the sheet's
  bool between = false;
};
Links set_links(DataSheet& sheet, const std::string& text);

}  // namespace crest
