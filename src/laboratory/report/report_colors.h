// The color (svg.h) of each phase, class and category, the same in all figures.
#pragma once
#include <string>
#include <vector>

namespace crest {

int category_color(const std::string& category);
int phase_color(const std::string& phase);
int class_color(const std::string& op_class);
// Phases and operation classes in stacking order.
const std::vector<std::string>& phase_order();
const std::vector<std::string>& class_order();

}  // namespace crest
