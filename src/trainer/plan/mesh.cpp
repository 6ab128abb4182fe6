#include "plan/mesh.h"

#include <fmt/format.h>

#include <set>

#include "core/error.h"
#include "core/text.h"
#include "settings/setting.h"

namespace crest {

std::string Mesh::text() const { return fmt::format("data={},tensor={},pipeline={}", data, tensor, pipeline); }

Mesh parse_mesh(const std::string& text) {
  Mesh mesh;
  if (text.empty()) return mesh;
  const char* example = "Write for example data=2,tensor=4,pipeline=2.";
  std::set<std::string> seen;
  for (auto& part : split(text, ',')) {
    size_t equals = part.find('=');
    std::string name = part.substr(0, equals);
    int64_t* size = name == "data"       ? &mesh.data
                    : name == "tensor"   ? &mesh.tensor
                    : name == "pipeline" ? &mesh.pipeline
                                         : nullptr;
    if (!size || equals == std::string::npos)
      fail_usage(fmt::format("'{}' is not AXIS=RANKS", printable(part)), "--mesh",
                 did_you_mean(name, {"data", "tensor", "pipeline"}) + " " + example);
    if (!seen.insert(name).second) fail_usage(fmt::format("'{}' is given twice", name), "--mesh", example);
    Setting row = {.name = "mesh", .group = "", .help = "", .min = 1, .max = double(1 << 20)};
    row.type = SettingType::whole;
    *size = std::get<int64_t>(parse_setting(row, part.substr(equals + 1)));
  }
  return mesh;
}

}  // namespace crest
