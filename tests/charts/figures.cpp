// Every figure, wide and narrow: well formed, nothing but numbers, no label over another or
// outside.
#include "charts/figure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "report/page.h"
#include "report/xml.h"

using namespace crest;
using crest::test::count;
using crest::test::well_formed;

namespace {

const double widths[] = {narrow_figure, 600, wide_figure};
const std::string hostile =
    "<script>alert(\"x\")</script> & a name that is much longer than any picture has room for \x1b[31m";

void expect_sound(const Svg& svg) {
  std::string text = svg.embedded();
  EXPECT_TRUE(well_formed(text)) << text.substr(0, 2000);
  EXPECT_TRUE(well_formed(svg.file("A title"))) << text.substr(0, 2000);
  for (const char* bad : {"nan", "inf\"", "<script", "\x1b"}) EXPECT_EQ(text.find(bad), std::string::npos) << bad;
  auto& boxes = svg.texts();
  for (size_t i = 0; i < boxes.size(); ++i) {
    const Box& a = boxes[i];
    EXPECT_GE(a.x, -0.5) << text;
    EXPECT_LE(a.x + a.width, svg.width() + 0.5) << "text " << i << " of " << text;
    EXPECT_GE(a.y, -0.5);
    EXPECT_LE(a.y + a.height, svg.height() + 0.5);
    for (size_t j = i + 1; j < boxes.size(); ++j)
      EXPECT_FALSE(a.overlaps(boxes[j])) << "texts " << i << " and " << j << " of\n" << text;
  }
}

RatioChart ratios() {
  RatioChart c{"ratios", "here / document", {}};
  c.rows = {
      {"half", "2 \u2192 1", "", 0.5, 0.4, 0.6}, {"twice", "1 \u2192 2", "", 2, NAN, NAN}, {hostile, "equal", "", 1}};
  return c;
}

BarChart bars() {
  BarChart c{"bars", "milliseconds", {"fusion off", "fusion on"}, {}};
  for (std::string label : {std::string("fp32, naive attention"), hostile, std::string("bf16")}) {
    Bar a, b;
    a.value = 123.4, a.low = 120, a.high = 131, a.text = "123 ms", a.best = true;
    b.value = 0.5, b.text = "0.50 ms";
    c.groups.push_back({label, {a, b}});
  }
  c.groups.push_back({"does not fit", {Bar{}, Bar{}}});
  c.groups.back().bars[0].missing = "out of memory";
  return c;
}

StackChart stack() {
  StackChart c;
  c.label = "stack", c.bytes = true;
  for (int i = 0; i < 9; ++i) c.parts.push_back({i == 3 ? hostile : "part " + std::to_string(i), i});
  c.rows.push_back({"first", "1.00 GiB", {1e9, 2e8, 0, 1e7, 5e8, 1e3, 0, 0, 1}, "", {}});
  c.rows.push_back({hostile, "12.0 MiB", {1e6, 2e6, 3e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6}, "does not fit", {}});
  return c;
}

Waterfall waterfall(double start, std::vector<double> deltas) {
  Waterfall w;
  w.label = "waterfall", w.axis = "milliseconds", w.from = "A", w.to = hostile;
  w.start = w.end = start, w.start_text = "A's", w.end_text = "B's time";
  for (double d : deltas) w.end += d, w.steps.push_back({"kernel efficiency", "+1.23 ms", d, "because"});
  return w;
}

Timeline timeline(int pieces) {
  Timeline t;
  t.label = "timeline", t.axis = "milliseconds";
  t.parts = {{"forward", 0}, {"backward", 1}};
  t.tracks = {{"all", {}}, {hostile, {}}};
  for (int i = 0; i < pieces; ++i) t.tracks[size_t(i % 2)].spans.push_back({0.01 * i, 0.008, i > pieces / 2});
  t.end = 0.01 * pieces;
  return t;
}

AreaChart areas(size_t positions) {
  AreaChart a;
  a.label = "areas", a.x_axis = "instructions";
  a.parts = {{"weights", 0}, {"activations", 1}};
  a.values = {std::vector<double>(positions, 1e8), std::vector<double>(positions, 0.0)};
  for (size_t i = 0; i < positions; ++i) a.values[1][i] = 1e9 * std::sin(3.14159 * double(i) / double(positions));
  a.stretches = {{0, positions / 2, "forward", 0}, {positions / 2 + 1, positions - 1, "backward", 1}};
  a.peak = "peak 1.02 GiB";
  return a;
}

Roofline roofline(int dots) {
  Roofline r;
  r.label = "roofline", r.bandwidth = 3.3e12;
  r.ceilings = {{"bf16", 8e14}, {"tf32", 4e14}, {"fp32", 6e13}};
  r.parts = {{"contraction", 0}, {"elementwise", 1}};
  for (int i = 0; i < dots; ++i)
    r.dots.push_back({i ? "mlp.fc linear_dw" : hostile, "tip", std::exp(3 * normal(1, 1, uint64_t(i))),
                      1e13 * std::exp(2 * normal(1, 2, uint64_t(i))), 0.03, i % 2});
  return r;
}

}  // namespace

TEST(Figures, AreSoundAtEveryWidth) {
  for (double w : widths) {
    SCOPED_TRACE(w);
    expect_sound(draw_bars(bars(), w));
    expect_sound(draw_ratios(ratios(), w));
    expect_sound(draw_stack(stack(), w));
    expect_sound(draw_waterfall(waterfall(100, {-30, 4, -0.001, -20}), w));
    expect_sound(draw_waterfall(waterfall(100, {-3, 1, 0.5}), w));
    expect_sound(draw_waterfall(waterfall(0, {5}), w));
    expect_sound(draw_waterfall(waterfall(100, {-90, -40, 55}), w));  // below zero on the way
    expect_sound(draw_timeline(timeline(500), w));
    expect_sound(draw_areas(areas(700), w));
    expect_sound(draw_areas(areas(3), w));
    expect_sound(draw_roofline(roofline(60), w));
    Series s{hostile, {1, 2, 4, 8, 1000}, {1e-5, 3, NAN, 7, 2e6}}, t{"second", {1, 1000}, {5, 5}};
    ChartOptions o{"lines", "batch", "tokens/s", false, false};
    expect_sound(draw_lines({s, t}, o, w));
    o.log_x = o.log_y = true;
    expect_sound(draw_lines({s, t, s, s, s, s, s, s, s, s}, o, w));
  }
}

TEST(Figures, SayWhenThereIsNothing) {
  for (double w : widths) {
    for (const Svg& svg : {draw_bars({}, w), draw_ratios({}, w), draw_stack({}, w), draw_waterfall({}, w),
                           draw_timeline({}, w), draw_areas({}, w), draw_roofline({}, w)}) {
      expect_sound(svg);
      EXPECT_EQ(svg.texts().size(), 1u);
    }
    expect_sound(draw_lines({}, {}, w));
  }
}

TEST(Figures, BarsSayWhatIsMissing) {
  std::string svg = draw_bars(bars(), wide_figure).embedded();
  EXPECT_NE(svg.find(">out of memory<"), std::string::npos);
  EXPECT_EQ(count(svg, "class=\"hatch\""), 1u);
  EXPECT_EQ(count(svg, "class=\"strong\""), 3u) << "the best are bold";
  EXPECT_EQ(count(svg, "class=\"whisker\""), 9u) << "three lines for each of three intervals";
}

TEST(Figures, WaterfallsOfSmallDifferencesSayThatTheirAxisIsCut) {
  auto says = [](const Waterfall& w) {
    return draw_waterfall(w, wide_figure).embedded().find("does not start at zero") != std::string::npos;
  };
  EXPECT_TRUE(says(waterfall(100, {-3, 1})));
  EXPECT_FALSE(says(waterfall(100, {-60, 10})));
}

TEST(Figures, LongSequencesStaySmallAndKeepTheirPeak) {
  EXPECT_LT(draw_timeline(timeline(100000), wide_figure).embedded().size(), 60000u);
  AreaChart a = areas(100000);
  a.values[1][77777] = 5e9;  // one instruction
  Svg svg = draw_areas(a, wide_figure);
  EXPECT_LT(svg.embedded().size(), 120000u);
  // The highest point of the stack: 12% below the top of the plot.
  std::string text = svg.embedded();
  size_t at = text.find("activations</title>");
  ASSERT_NE(at, std::string::npos);
  size_t path = text.rfind("<path d=\"M", at);
  double top = 1e9;
  for (size_t i = path + 9; text[i] != 'z'; i = text.find_first_of("MLz", i + 1)) {
    double x = 0, y = 0;
    if (std::sscanf(text.c_str() + i + 1, "%lf %lf", &x, &y) == 2) top = std::min(top, y);
  }
  EXPECT_LT(top, 100) << "the plot begins at about 30";
}

TEST(Text, WidthsAreThoseOfAWideFont) {
  EXPECT_NEAR(text_width("0000000000", 10), 64, 0.1);
  EXPECT_GT(text_width("W", 10), text_width("i", 10) * 2);
  EXPECT_GT(text_width("bold", 10, true), text_width("bold", 10));
  EXPECT_EQ(fit_text("short", 200), "short");
  EXPECT_EQ(fit_text("a much longer text", 60).substr(0, 4), "a mu");
  EXPECT_LE(text_width(fit_text("a much longer text", 60)), 60);
  EXPECT_EQ(fit_text("\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4", 40).find('\xC3') % 2, 0u)
      << "whole characters";
  EXPECT_EQ(fit_text("anything", 1), "…");
}

// Half and twice reach equally far from 1.
TEST(Figures, RatiosAreOnALogarithmicAxis) {
  RatioChart c{"ratios", "", {{"half", "", "", 0.5}, {"twice", "", "", 2}}};
  std::string svg = draw_ratios(c, wide_figure).embedded();
  std::vector<double> widths;
  for (size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1))
    widths.push_back(std::stod(svg.substr(svg.find("width=\"", at) + 7)));
  ASSERT_EQ(widths.size(), 2u) << svg;
  EXPECT_NEAR(widths[0], widths[1], 0.2);
  EXPECT_GT(widths[0], 50);
}
