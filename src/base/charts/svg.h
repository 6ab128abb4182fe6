// A picture under construction: shapes and texts in pixels, in the common style of all figures. No
// scripts, fonts, references or ids. Follows the reader's light or dark color scheme; light in
// print.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crest {

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  bool overlaps(const Box& other) const;
};

// An upper bound for the width of a text in pixels, using a wide font since the reader's is
// unknown.
double text_width(std::string_view text, double size = 13, bool bold = false);
// The longest fitting prefix, with an ellipsis when cut.
std::string fit_text(std::string_view text, double width, double size = 13, bool bold = false);

enum class Anchor { start, middle, end };

struct TextStyle {
  Anchor anchor = Anchor::start;
  // One of: "" (soft ink), "ink", "strong", "small", "on0".. (on a shape of this color).
  const char* look = "";
  double max_width = 0;   // 0: unlimited; else cut with an ellipsis, with the full text as a tooltip
  bool optional = false;  // omitted where it would overlap another text or leave the picture
  bool upright = false;   // reads from bottom to top
  bool halo = false;      // an outline in paper color separates it from lines behind it
};

// Colors are numbers. They are distinguishable for color-blind readers, and each has a variant for
// dark mode. Class "cN" fills, "sN" strokes; N is taken modulo `colors`, and the last one is gray.
inline constexpr int colors = 10;
inline constexpr int gray = colors - 1;
std::string fill(int color);
std::string stroke(int color);

class Svg {
 public:
  // label: a description for screen readers.
  Svg(double width, double height, std::string label);

  double width() const { return width_; }
  double height() const { return height_; }

  // css: classes. tip: tooltip.
  void rect(double x, double y, double width, double height, std::string_view css, std::string_view tip = {});
  void line(double x1, double y1, double x2, double y2, std::string_view css);
  void path(const std::string& d, std::string_view css, std::string_view tip = {});
  void circle(double x, double y, double radius, std::string_view css, std::string_view tip = {});
  // Diagonal lines over a rectangle: marks a missing value.
  void hatched(double x, double y, double width, double height, std::string_view tip = {});
  // y is the baseline. False when an optional text does not fit.
  bool text(double x, double y, std::string_view text, const TextStyle& style = {});
  // Reserves an area: optional texts stay out of it.
  void reserve(const Box& box) { taken_.push_back(box); }
  bool free(const Box& box) const;

  // A legend: entries with color marks, wrapped into lines from (x, y); returns the y below them.
  double legend(double x, double y, double right, const std::vector<std::pair<std::string, int>>& entries);

  const std::vector<Box>& texts() const { return texts_; }
  // For a page with one figure_css().
  std::string embedded() const;
  // A complete file with its own style, and the title on top.
  std::string file(const std::string& title) const;

 private:
  void shape(const std::string& tag, std::string_view css, std::string_view tip);

  double width_, height_;
  std::string label_, body_;
  std::vector<Box> texts_, taken_;
};

// The CSS rules of the classes.
std::string figure_css();

// Escapes text for an element or attribute; control characters forbidden in XML become U+FFFD.
std::string escape_xml(std::string_view text);

}  // namespace crest
