// A picture under construction: shapes and texts in pixels, in the one style of all figures. No scripts, no fonts, no
// references, no ids; follows the reader's light or dark colour scheme and is light on paper.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace crest {

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  bool overlaps(const Box& other) const;
};

// Pixels that a text takes at most: widths of a wide font, since the reader's is unknown.
double text_width(std::string_view text, double size = 13, bool bold = false);
// The longest start that fits, marked by an ellipsis when something was cut.
std::string fit_text(std::string_view text, double width, double size = 13, bool bold = false);

enum class Anchor { start, middle, end };

struct TextStyle {
  Anchor anchor = Anchor::start;
  // One of: "" (soft ink), "ink", "strong", "small", "on0".. (upon a shape of that colour).
  const char* look = "";
  double max_width = 0;   // 0: as wide as it is; else cut by an ellipsis, the whole text as a tip
  bool optional = false;  // left out where it would overlap another text or leave the picture
  bool upright = false;   // reads from bottom to top
  bool halo = false;      // a rim of paper keeps lines behind it away
};

// Colours are numbers: told apart by colour-blind readers, each with a variant for dark paper. A class "cN" fills,
// "sN" strokes; N is taken modulo `colors`, the last one is grey.
inline constexpr int colors = 10;
inline constexpr int grey = colors - 1;
std::string fill(int color);
std::string stroke(int color);

class Svg {
 public:
  // label: what the picture shows, for those who cannot see it.
  Svg(double width, double height, std::string label);

  double width() const { return width_; }
  double height() const { return height_; }

  // css: classes. tip: shown when pointed at.
  void rect(double x, double y, double width, double height, std::string_view css, std::string_view tip = {});
  void line(double x1, double y1, double x2, double y2, std::string_view css);
  void path(const std::string& d, std::string_view css, std::string_view tip = {});
  void circle(double x, double y, double radius, std::string_view css, std::string_view tip = {});
  // Diagonal lines over a rectangle: what is below is no value.
  void hatched(double x, double y, double width, double height, std::string_view tip = {});
  // y is the baseline. False when an optional text found no room.
  bool text(double x, double y, std::string_view text, const TextStyle& style = {});
  // Keeps optional texts out of a place.
  void reserve(const Box& box) { taken_.push_back(box); }
  bool free(const Box& box) const;

  // Entries with a mark of their colour, in as many lines as they need from (x, y) on; returns the y below them.
  double legend(double x, double y, double right, const std::vector<std::pair<std::string, int>>& entries);

  const std::vector<Box>& texts() const { return texts_; }
  // For a page that holds figure_css() once.
  std::string embedded() const;
  // A whole file with its own style, and the title on top.
  std::string file(const std::string& title) const;

 private:
  void shape(const std::string& tag, std::string_view css, std::string_view tip);

  double width_, height_;
  std::string label_, body_;
  std::vector<Box> texts_, taken_;
};

// The rules behind the classes.
std::string figure_css();

// Text safe inside an element or an attribute; control characters that XML forbids become U+FFFD.
std::string escape_xml(std::string_view text);

// Writes a file by way of a temporary one beside it; fails with the path.
void write_text_file(const std::string& path, std::string_view text);

}  // namespace crest
