#include "report/report_colors.h"

#include <algorithm>

#include "charts/svg.h"
#include "plan/memory_plan.h"

namespace crest {

static int place(const std::vector<std::string>& order, const std::string& name) {
  auto it = std::find(order.begin(), order.end(), name);
  return it == order.end() ? gray : int(it - order.begin());
}

int category_color(const std::string& category) {
  for (int i = 0; i < category_count; ++i)
    if (name(Category(i)) == category) {
      static const int color[category_count] = {0, 5, 6, 1, 4, 7, 2, 3, gray};
      return color[i];
    }
  return gray;
}

const std::vector<std::string>& phase_order() {
  static const std::vector<std::string> order = {"forward",       "recompute", "backward", "update",
                                                 "communication", "copies",    "idle"};
  return order;
}

int phase_color(const std::string& phase) {
  static const int color[] = {5, 4, 6, 2, 3, 7, gray};
  int i = place(phase_order(), phase);
  return i < 7 ? color[i] : gray;
}

const std::vector<std::string>& class_order() {
  static const std::vector<std::string> order = {"contraction", "attention",    "normalization", "elementwise",
                                                 "loss",        "optimizer",    "embedding",     "reduction",
                                                 "movement",    "communication"};
  return order;
}

int class_color(const std::string& op_class) {
  static const int color[] = {0, 1, 2, 4, 3, 6, 7, 5, 8, 8};
  int i = place(class_order(), op_class);
  return i < 10 && i < int(std::size(color)) ? color[i] : gray;
}

}  // namespace crest
