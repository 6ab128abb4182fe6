#include "charts/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "terminal/table.h"

namespace crest {

bool Box::overlaps(const Box& o) const {
  return x < o.x + o.width && o.x < x + width && y < o.y + o.height && o.y < y + height;
}

double text_width(std::string_view text, double size, bool bold) {
  // Advance widths of U+0020 .. U+007E in hundredths of the font size, for DejaVu Sans, a font
  // wider than most system fonts.
  static const uint8_t widths[] = {32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36,  32, 34, 64, 64, 64,
                                   64, 64, 64, 64, 64, 64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63,
                                   58, 77, 75, 29, 29, 66, 56, 86, 75, 79, 60, 79, 69, 63,  61, 73, 68, 99, 68,
                                   61, 68, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35,  63, 63, 28, 28, 58,
                                   28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59,  52, 64, 34, 64, 84};
  double sum = 0;
  for (size_t i = 0; i < text.size();) {
    uint8_t c = uint8_t(text[i]);
    size_t bytes = 1;
    if (c >= 0x20 && c < 0x7F) {
      sum += widths[c - 0x20];
    } else {
      while (i + bytes < text.size() && (uint8_t(text[i + bytes]) & 0xC0) == 0x80) ++bytes;
      sum += 84.0 * double(std::max<size_t>(1, display_width(text.substr(i, bytes))));
    }
    i += bytes;
  }
  return sum / 100 * size * (bold ? 1.12 : 1);
}

std::string fit_text(std::string_view text, double width, double size, bool bold) {
  if (text_width(text, size, bold) <= width) return std::string(text);
  for (size_t n = text.size(); n > 0; --n) {
    if (n < text.size() && (uint8_t(text[n]) & 0xC0) == 0x80) continue;  // inside a character
    std::string cut = std::string(text.substr(0, n)) + "…";
    if (text_width(cut, size, bold) <= width) return cut;
  }
  return "…";
}

std::string fill(int color) { return fmt::format("c{}", color % colors); }
std::string stroke(int color) { return fmt::format("s{}", color % colors); }

Svg::Svg(double width, double height, std::string label) : width_(width), height_(height), label_(std::move(label)) {}

void Svg::shape(const std::string& tag, std::string_view css, std::string_view tip) {
  body_ += "<" + tag;
  if (!css.empty()) body_ += fmt::format(" class=\"{}\"", css);
  if (tip.empty())
    body_ += "/>\n";
  else
    body_ += fmt::format("><title>{}</title></{}>\n", escape_xml(tip), tag.substr(0, tag.find(' ')));
}

void Svg::rect(double x, double y, double width, double height, std::string_view css, std::string_view tip) {
  shape(fmt::format("rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"", x, y, std::max(0.0, width),
                    std::max(0.0, height)),
        css, tip);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view css) {
  shape(fmt::format("line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"", x1, y1, x2, y2), css, {});
}

void Svg::path(const std::string& d, std::string_view css, std::string_view tip) {
  shape("path d=\"" + d + "\"", css, tip);
}

void Svg::circle(double x, double y, double radius, std::string_view css, std::string_view tip) {
  shape(fmt::format("circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"", x, y, radius), css, tip);
}

void Svg::hatched(double x, double y, double width, double height, std::string_view tip) {
  rect(x, y, width, height, "outline", tip);
  std::string d;
  for (double at = 8; at < width + height; at += 8) {
    // From the top (or right) edge down to the left (or bottom) edge.
    double right = std::min(at, width), left = std::max(0.0, at - height);
    d += fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", x + right, y + at - right, x + left, y + at - left);
  }
  if (!d.empty()) path(d, "hatch");
}

bool Svg::free(const Box& box) const {
  auto overlaps = [&](const Box& o) { return box.overlaps(o); };
  return std::none_of(texts_.begin(), texts_.end(), overlaps) && std::none_of(taken_.begin(), taken_.end(), overlaps);
}

bool Svg::text(double x, double y, std::string_view text, const TextStyle& style) {
  std::string look = style.look;
  double size = look == "small" ? 11 : 13;
  bool bold = look == "strong";
  std::string shown = style.max_width > 0 ? fit_text(text, style.max_width, size, bold) : std::string(text);
  double width = text_width(shown, size, bold);
  double back = style.anchor == Anchor::end ? width : style.anchor == Anchor::middle ? width / 2 : 0;
  double up = 0.93 * size, height = 1.17 * size;
  Box box = style.upright ? Box{x - up, y - width + back, height, width} : Box{x - back, y - up, width, height};
  if (style.optional) {
    bool inside = box.x >= 0 && box.y >= 0 && box.x + box.width <= width_ && box.y + box.height <= height_;
    if (!inside || !free(box)) return false;
  }
  texts_.push_back(box);
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"", x, y);
  if (style.halo) look += look.empty() ? "halo" : " halo";
  if (!look.empty()) body_ += fmt::format(" class=\"{}\"", look);
  if (style.anchor != Anchor::start)
    body_ += fmt::format(" text-anchor=\"{}\"", style.anchor == Anchor::end ? "end" : "middle");
  if (style.upright) body_ += fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y);
  body_ += ">";
  if (shown != text) body_ += fmt::format("<title>{}</title>", escape_xml(text));
  body_ += escape_xml(shown) + "</text>\n";
  return true;
}

double Svg::legend(double x, double y, double right, const std::vector<std::pair<std::string, int>>& entries) {
  if (entries.empty()) return y;
  double at = x;
  for (auto& [name, color] : entries) {
    double width = std::min(18 + text_width(name), right - x);
    if (at > x && at + width > right) at = x, y += 20;
    rect(at, y + 4, 11, 11, fill(color));
    text(at + 17, y + 14, name, {.look = "ink", .max_width = std::max(20.0, right - at - 17)});
    at += width + 18;
  }
  return y + 28;
}

static std::string open_tag(double width, double height, const std::string& label) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
      "aria-label=\"{}\">\n",
      width, height, escape_xml(label));
}

std::string Svg::embedded() const { return open_tag(width_, height_, label_) + body_ + "</svg>\n"; }

std::string Svg::file(const std::string& title) const {
  const double top = 38;
  return open_tag(width_, height_ + top, label_) +
         fmt::format("<title>{}</title>\n<style>\n{}</style>\n", escape_xml(title), figure_css()) +
         "<rect width=\"100%\" height=\"100%\" class=\"paper\"/>\n" +
         fmt::format("<text class=\"title\" x=\"14\" y=\"26\">{}</text>\n<g transform=\"translate(0 {})\">\n",
                     escape_xml(fit_text(title, width_ - 28, 16, true)), top) +
         body_ + "</g>\n</svg>\n";
}

namespace {

struct Scheme {
  const char *paper, *ink, *soft, *grid, *faint;
  const char* shapes[colors];
  const char* upon[colors];  // ink on top of the color
};

// After Okabe and Ito. Plain classes without custom properties, supported by image viewers.
const Scheme light = {
    "#ffffff",
    "#1a1f24",
    "#59636e",
    "#e4e8ec",
    "#f4f6f8",
    {"#0b6bb0", "#d55e00", "#00946b", "#b0578d", "#e0a500", "#5db4e8", "#6d4fa8", "#7f6a58", "#37474f", "#a4adb7"},
    {"#ffffff", "#ffffff", "#ffffff", "#ffffff", "#1a1f24", "#1a1f24", "#ffffff", "#ffffff", "#ffffff", "#1a1f24"}};
const Scheme dark = {
    "#14181c",
    "#e8ebee",
    "#a3adb7",
    "#2b323a",
    "#1c2126",
    {"#4ba3e3", "#ff8f45", "#35c498", "#df91be", "#f0cf5a", "#9ad5f7", "#ab8fe6", "#bda28a", "#c9d3dc", "#6e7883"},
    {"#101418", "#101418", "#101418", "#101418", "#101418", "#101418", "#101418", "#101418", "#101418", "#ffffff"}};

std::string rules(const Scheme& s) {
  std::string css = fmt::format(
      ".fig text {{ fill: {1} }} .fig .ink, .fig .strong, .fig .title {{ fill: {0} }}\n"
      ".fig .paper {{ fill: {2} }} .fig .grid {{ stroke: {3} }} .fig .axis {{ stroke: {1} }}\n"
      ".fig .band {{ fill: {4} }} .fig .outline {{ stroke: {1} }} .fig .hatch {{ stroke: {1} }} .fig .halo {{ stroke: "
      "{2} }}\n"
      ".fig .whisker {{ stroke: {0} }} .fig .edge {{ stroke: {2} }}\n",
      s.ink, s.soft, s.paper, s.grid, s.faint);
  for (int i = 0; i < colors; ++i)
    css += fmt::format(".fig .c{0} {{ fill: {1} }} .fig .s{0} {{ stroke: {1} }} .fig .on{0} {{ fill: {2} }}\n", i,
                       s.shapes[i], s.upon[i]);
  return css;
}

}  // namespace

std::string figure_css() {
  return ".fig text { font: 13px system-ui, -apple-system, \"Segoe UI\", Roboto, sans-serif }\n"
         ".fig .small { font-size: 11px } .fig .strong { font-weight: 600 }\n"
         ".fig .title { font-size: 16px; font-weight: 600 }\n"
         ".fig .grid, .fig .axis, .fig .outline { stroke-width: 1 } .fig .outline { fill: none } .fig .hatch { "
         "stroke-width: 1; fill: none }\n"
         ".fig .whisker { stroke-width: 1.5; fill: none } .fig .edge { stroke-width: 1 }\n"
         ".fig .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }\n"
         ".fig .halo { stroke-width: 4px; stroke-linejoin: round; paint-order: stroke }\n"
         ".fig .dense { stroke-width: 1.3 } .fig .faint { stroke-width: 1; stroke-opacity: .5 } .fig .dashed { "
         "stroke-dasharray: 6 4 } .fig .dot { fill-opacity: .55; "
         "stroke-width: 1.5 }\n" +
         rules(light) + "@media screen and (prefers-color-scheme: dark) {\n" + rules(dark) + "}\n";
}

std::string escape_xml(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default:
        if (uint8_t(c) < 0x20 && c != '\t' && c != '\n')
          out += "\xEF\xBF\xBD";
        else
          out += c;
    }
  }
  return valid_utf8(out);
}

}  // namespace crest
