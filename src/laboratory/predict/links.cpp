#include "predict/links.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/text.h"

namespace crest {

namespace {

// Bytes/s.
std::optional<double> link_rate(std::string_view text) {
  const bool bits = text.ends_with("Gb");
  if (!bits && !text.ends_with("GB")) return {};
  text.remove_suffix(2);
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value <= 0 || value > 1e6)
    return {};
  return value * 1e9 / (bits ? 8 : 1);
}

[[noreturn]] void fail_link(const std::string& part) {
  fail_usage(fmt::format("'{}' is not a link", printable(part)), "--link",
             "Give the link inside a node (nvlink, pcie or a rate) and the rate between nodes for each GPU, such as "
             "--link nvlink,400Gb.");
}

}  // namespace

Links set_links(DataSheet& sheet, const std::string& text) {
  const std::vector<std::string> parts = split(text, ',');
  if (parts.empty() || parts.size() > 2) fail_link(text);
  Links links;
  if (parts.size() == 2 || !link_rate(parts[0])) {
    const std::string& inside = parts[0];
    if (inside == "pcie") {
      links.in_node = true;
      sheet.link = sheet.host_link.empty() ? "PCIe 4.0 x16" : sheet.host_link;
      sheet.link_bandwidth = 2 * sheet.host_link_one_way();
    } else if (const std::optional<double> rate = link_rate(inside)) {
      links.in_node = true;
      sheet.link = inside, sheet.link_bandwidth = 2 * *rate;
    } else if (inside != "nvlink") {
      fail_link(inside);
    }
  }
  if (parts.size() == 2 || link_rate(parts[0])) {
    const std::optional<double> rate = link_rate(parts.back());
    if (!rate) fail_link(parts.back());
    links.between = true;
    sheet.network = parts.back(), sheet.network_bandwidth = 2 * *rate;
  }
  return links;
}

}  // namespace crest
