#include "charts/chart.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

#include "charts/figure.h"
#include "charts/svg.h"
#include "charts/terminal_chart.h"
#include "core/error.h"
#include "core/random.h"
#include "core/temporary_folder.h"
#include "core/text.h"
#include "report/xml.h"
#include "terminal/table.h"

using namespace crest;
using crest::test::count;
using crest::test::well_formed;

namespace {

Series curve(int n) {
  Series s{"train loss", {}, {}};
  for (int i = 0; i < n; ++i) s.x.push_back(i), s.y.push_back(2.5 + 5 * std::exp(-i / 300.0));
  return s;
}

}  // namespace

// A delayed mean of a falling line is above it.
TEST(Smoothed, DoesNotLagBehindALine) {
  Series line;
  for (int i = 0; i < 1000; ++i) line.x.push_back(i), line.y.push_back(5 - 0.004 * i);
  Series s = smoothed(line);
  ASSERT_GE(s.x.size(), 300u);
  EXPECT_EQ(s.x.front(), 0);
  EXPECT_EQ(s.x.back(), 999);
  for (size_t i = 0; i < s.x.size(); ++i) EXPECT_NEAR(s.y[i], 5 - 0.004 * s.x[i], 1e-9) << i;
}

TEST(Smoothed, TakesNoiseAwayAndKeepsTheCurve) {
  Series noisy;
  for (int i = 0; i < 2000; ++i)
    noisy.x.push_back(i), noisy.y.push_back(2 + 5 * std::exp(-i / 300.0) + 0.1 * normal(1, 2, uint64_t(i)));
  double error = 0;
  Series s = smoothed(noisy);
  for (size_t i = 0; i < s.x.size(); ++i) error = std::max(error, std::abs(s.y[i] - 2 - 5 * std::exp(-s.x[i] / 300)));
  EXPECT_LT(error, 0.08);
  // The steep start of a long training: the line starts where the points do.
  Series steep;
  for (int i = 0; i < 4000; ++i) steep.x.push_back(i), steep.y.push_back(3 + 4.6 * std::exp(-i / 35.0));
  EXPECT_NEAR(smoothed(steep).y.front(), steep.y.front(), 0.1);
  EXPECT_EQ(smoothed({"", {}, {}}).x.size(), 0u);
  EXPECT_EQ(smoothed({"", {3}, {4}}).y, std::vector<double>{4});
  EXPECT_EQ(smoothed({"", {1, 2, 3}, {1, NAN, 3}}).x, (std::vector<double>{1, 3}));
}

TEST(LossCurves, OfOneRunHaveOneColorAndOneEntryInTheLegend) {
  Series train = curve(100), val{"", {0, 50, 99}, {7, 5, 4}};
  auto curves = loss_curves("lr 0.001", train, val, 3);
  ASSERT_EQ(curves.size(), 3u);
  for (auto& c : curves) EXPECT_EQ(c.color, 3);
  EXPECT_EQ(curves[0].look, Series::Look::faint);
  EXPECT_EQ(curves[0].y, train.y);
  EXPECT_EQ(curves[1].look, Series::Look::solid);
  EXPECT_EQ(curves[2].look, Series::Look::dashed);
  EXPECT_EQ(curves[2].y, val.y);
  std::string svg = draw_lines(curves, {"Loss", "step", "loss"}, 800).embedded();
  EXPECT_EQ(count(svg, ">lr 0.001</text>"), 1u);
  EXPECT_EQ(count(svg, "line s3"), 3u) << svg;
  EXPECT_EQ(count(svg, " faint\""), 1u);
  EXPECT_EQ(count(svg, " dashed"), 1u);
}

TEST(Ticks, AreRoundNumbersInside) {
  EXPECT_EQ(nice_ticks({0, 10, false}, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(tick_labels({0, 0.5, 1}), (std::vector<std::string>{"0", "0.5", "1"}));
  EXPECT_EQ(tick_labels({0, 5000, 10000, 15000}), (std::vector<std::string>{"0", "5000", "10k", "15k"}));
  EXPECT_EQ(tick_labels({1e-5, 2e-5}), (std::vector<std::string>{"1e-05", "2e-05"}));
  EXPECT_EQ(nice_ticks({1, 1000, true}, 4), (std::vector<double>{1, 10, 100, 1000}));
  EXPECT_TRUE(nice_ticks({3, 3, false}, 5).empty());
}

TEST(Ticks, OfRandomRanges) {
  for (uint64_t i = 0; i < 2000; ++i) {
    double low = normal(1, 1, i) * std::pow(10, 8 * normal(1, 2, i) / 3);
    double high = low + std::pow(10, 4 * normal(1, 3, i)) + 1e-6 * std::abs(low);
    auto ticks = nice_ticks({low, high, false}, 6);
    ASSERT_GE(ticks.size(), 2u) << low << " " << high;
    ASSERT_LE(ticks.size(), 9u) << low << " " << high;
    double slack = 1e-6 * (high - low);
    for (double t : ticks) {
      EXPECT_GE(t, low - slack);
      EXPECT_LE(t, high + slack);
    }
    auto labels = tick_labels(ticks);
    EXPECT_EQ(std::set<std::string>(labels.begin(), labels.end()).size(), ticks.size()) << low << " " << high;
    double a = std::exp(normal(1, 4, i) * 5), b = a * (1.001 + std::exp(normal(1, 5, i) * 4));
    EXPECT_GE(nice_ticks({a, b, true}, 6).size(), 2u) << a << " " << b;
    EXPECT_LE(nice_ticks({a, b, true}, 6).size(), 13u) << a << " " << b;
  }
}

TEST(Axes, BeginAndEndWithTheData) {
  const ChartAxes axes =
      fit_axes({{"continued", {500, 700, 900}, {3, 2.5, 2.4}}, {"validation", {600, 800}, {3, 2}}}, {});
  EXPECT_EQ(axes.x.low, 500);
  EXPECT_EQ(axes.x.high, 900);
  EXPECT_NEAR(axes.y.low, 2, 0.1);  // not from 0
}

TEST(Axes, IgnoreWhatCannotBeDrawn) {
  Series s{"s", {0, 1, 2, 3}, {1, NAN, INFINITY, 3}};
  ChartAxes axes = fit_axes({s}, {});
  EXPECT_EQ(axes.x.low, 0);
  EXPECT_EQ(axes.x.high, 3);
  EXPECT_NEAR(axes.y.low, 1, 0.1);
  EXPECT_NEAR(axes.y.high, 3, 0.1);
  ChartOptions log;
  log.log_x = log.log_y = true;
  EXPECT_DOUBLE_EQ(fit_axes({s}, log).x.low, 1.5) << "x = 0 has no place on a log axis; only x = 3 is left";
  ChartAxis flat = fit_axes({{"f", {1, 2}, {5, 5}}}, {}).y;
  EXPECT_LT(flat.low, 5);
  EXPECT_GT(flat.high, 5);
  EXPECT_TRUE(std::isnan((ChartAxis{1, 10, true}.place(-1))));
}

TEST(Svg, IsWellFormedAndEscaped) {
  ChartOptions o;
  o.title = "<script>alert('x')</script> & \"more\"\x01\xff";
  o.x_label = "step", o.y_label = "loss < 3";
  std::string svg = line_chart_svg({curve(50), {"val & <b>", {0, 25}, {7, 3}}}, o);
  EXPECT_TRUE(well_formed(svg)) << svg.substr(0, 3000);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_EQ(svg.find('\x01'), std::string::npos);
  EXPECT_EQ(svg, valid_utf8(svg));
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(svg.find("viewBox=\"0 0 800 450\""), std::string::npos);
  EXPECT_EQ(count(svg, "<path "), 2u);
  EXPECT_EQ(count(svg, "<circle "), 2u) << "the few points of the validation curve are marked";
  EXPECT_NE(svg.find("val &amp; &lt;b&gt;"), std::string::npos);
}

TEST(Svg, GapsSpikesAndThinning) {
  Series s = curve(100000);
  s.y[50000] = 100;  // one spike of a step must survive
  s.y[70000] = NAN;
  ChartOptions options;
  std::string svg = line_chart_svg({s}, options);
  EXPECT_LT(svg.size(), 100000u);
  std::string path = svg.substr(svg.find(" d=\""));
  EXPECT_EQ(count(path.substr(0, path.find("/>")), "M"), 2u) << "NaN leaves a gap";
  double top = 1e9;
  for (size_t i = path.find('"') + 1; path[i] != '"'; i = path.find_first_of("ML\"", i + 1)) {
    double x = 0, y = 0;
    ASSERT_EQ(std::sscanf(path.c_str() + i + 1, "%lf %lf", &x, &y), 2);
    top = std::min(top, y);
  }
  EXPECT_LT(top, 90) << "the spike reaches the top of the plot (64 is its edge)";
}

TEST(Svg, NothingToDraw) {
  EXPECT_FALSE(well_formed("<a><b></a></b>") || well_formed("<a x=\"1>") || well_formed("&") || well_formed("<a>"));
  EXPECT_TRUE(well_formed(line_chart_svg({}, {})));
  EXPECT_TRUE(well_formed(line_chart_svg({{"a", {1}, {NAN}}}, {})));
}

TEST(TerminalChart, FitsItsCells) {
  ChartOptions o;
  o.title = "a title", o.x_label = "step";
  for (int width : {24, 40, 78, 200})
    for (int height : {5, 12, 30}) {
      std::string chart = terminal_chart({curve(500), {"val", {0, 250, 499}, {7.5, 4.6, 3.4}}}, o, width, height);
      auto lines = split(chart, '\n');
      EXPECT_EQ(lines.size(), size_t(height) + 1) << "and a final newline";
      for (auto& line : lines) EXPECT_LE(display_width(line), size_t(width)) << line;
      EXPECT_EQ(chart.find('\x1b'), std::string::npos);
    }
}

TEST(TerminalChart, DrawsTheCurve) {
  std::string chart = terminal_chart({{"line", {0, 1}, {0, 1}}}, {}, 24, 8);
  auto lines = split(chart, '\n');
  // A rising line: its ink moves left from row to row; the plot has six rows here (axis, labels,
  // legend below).
  size_t last = 1000;
  int rows = 0;
  for (auto& line : lines) {
    size_t bar = line.find("\u2502") != std::string::npos ? line.find("\u2502") : line.find("\u2524");
    if (bar == std::string::npos) continue;
    size_t ink = line.find_first_not_of(' ', bar + 3);
    ASSERT_NE(ink, std::string::npos) << line;
    EXPECT_LT(ink - bar, last) << chart;
    last = ink - bar;
    ++rows;
  }
  EXPECT_EQ(rows, 5) << chart;
}

TEST(TerminalChart, MarkersColorAndNothing) {
  std::string chart = terminal_chart({curve(50), {"val", {10}, {5}}}, {}, 60, 12);
  EXPECT_NE(chart.find("o val"), std::string::npos);
  EXPECT_GE(count(chart, "o"), 3u) << "train l(o)ss, o val, and the marker";
  EXPECT_NE(terminal_chart({curve(50)}, {}, 60, 12, true).find("\x1b[36m"), std::string::npos);
  EXPECT_EQ(terminal_chart({}, {}), "");
  EXPECT_EQ(terminal_chart({{"a", {1}, {NAN}}}, {}), "");
  EXPECT_NE(terminal_chart({{"one point", {1}, {2}}}, {}), "");
}
