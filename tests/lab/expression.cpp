// The language of claims: results of expressions, results left open by noise, and the positions of
// mistakes.
#include "lab/expression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

namespace crest::lab {

namespace {

Table ladder() {
  Table table;
  auto row = [&](const char* precision, const char* batch, Value ms, double bytes) {
    table.rows.push_back({{{"precision", precision}, {"batch", batch}, {"status", "done"}},
                          {{"ms", ms}, {"bytes", Value::number(bytes)}, {"dtype", Value::of_text(precision)}},
                          "",
                          ""});
  };
  row("fp32", "4", Value::range(100, 98, 102), 1000);
  row("bf16", "4", Value::range(50, 49, 51), 600);
  row("fp32", "8", Value::range(200, 196, 204), 1800);
  row("bf16", "8", Value::range(99, 97, 101), 1000);
  Row absent;
  absent.keys = {{"precision", "tf32"}, {"batch", "4"}, {"status", "absent"}};
  absent.absent = "the CPU has no tf32";
  table.rows.push_back(absent);
  return table;
}

Value value_of(const std::string& text) {
  Table table = ladder();
  Scope scope;
  scope.table = &table;
  scope.name = [](const std::string& name) { return Value::number(name == "seven" ? 7 : 0); };
  return evaluate(parse_expression(text), text, scope);
}
double number(const std::string& text) {
  Value v = value_of(text);
  EXPECT_TRUE(v.known()) << text << ": " << v.unknown;
  return v.x;
}
std::string truth(const std::string& text) { return describe(value_of(text)); }

// Where parsing or checking fails, -1: nowhere.
std::pair<int, std::string> mistake(const std::string& text) {
  try {
    check_names(parse_expression(text), {{"ms", "bytes", "dtype"}, {"precision", "batch", "status"}, {"seven"}});
  } catch (const ExpressionError& e) {
    return {int(e.at), e.what + " " + e.advice};
  }
  return {-1, ""};
}

}  // namespace

TEST(Expression, Arithmetic) {
  EXPECT_EQ(number("1 + 2 * 3 - 4 / 2"), 5);
  EXPECT_EQ(number("-2 ^ 2"), -4);
  EXPECT_EQ(number("2 ^ 3 ^ 2"), 512);
  EXPECT_EQ(number("(1 + 2) * 3"), 9);
  EXPECT_EQ(number("10 - 4 - 3"), 3);
  EXPECT_EQ(number("5%"), 0.05);
  EXPECT_EQ(number("1.5GiB + 1kB"), 1.5 * 1024 * 1024 * 1024 + 1000);
  EXPECT_EQ(number("1e3 + 2.5e-1"), 1000.25);
  EXPECT_EQ(value_of("24FLOP * 2 / 4").unit, Unit::flops);
  EXPECT_EQ(number("seven * 2"), 14);
  EXPECT_EQ(number("round_up(50257, 128)"), 50304);
  EXPECT_EQ(number("remainder(50304, 128)"), 0);
  EXPECT_EQ(number("rounded(2.34567, 2)"), 2.35);
  EXPECT_NEAR(number("log2(8) + sqrt(16) + abs(-3) + floor(2.7)"), 3 + 4 + 3 + 2, 1e-12);
  EXPECT_EQ(number("parameters(\"gpt2-124M\")"), 124439808);
}

TEST(Expression, FunctionsOverTheTable) {
  EXPECT_EQ(number("value(ms, precision=fp32, batch=4)"), 100);
  EXPECT_EQ(number("ratio(ms, precision=fp32, precision=bf16, batch=4)"), 2);
  EXPECT_EQ(number("ratio(ms, batch=8, batch=4, precision=fp32)"), 2);
  EXPECT_EQ(number("max(ms)"), 200);
  EXPECT_EQ(number("min(ms, precision=fp32)"), 100);
  EXPECT_EQ(number("mean(ms, precision=fp32)"), 150);
  EXPECT_EQ(number("sum(ms, batch=4, status=done)"), 150);
  EXPECT_EQ(number("sum(ms, batch=99)"), 0);
  EXPECT_EQ(number("count(ms)"), 4);
  EXPECT_EQ(number("count(batch, status=absent)"), 1);
  EXPECT_NEAR(number("spread(bytes, precision=bf16)"), 1000.0 / 600 - 1, 1e-12);
  EXPECT_EQ(number("count(ms, batch=4.0e0)"), number("count(ms, batch=4)")) << "numbers match by value";
  EXPECT_EQ(number("slope(bytes, batch, precision=fp32)"), 200);
  EXPECT_EQ(number("intercept(bytes, batch, precision=fp32)"), 200);
  EXPECT_EQ(number("linearity(bytes, batch, precision=fp32)"), 1);
  EXPECT_EQ(number("where_max(ms, batch, precision=fp32)"), 8);
  EXPECT_EQ(truth("where_min(ms, precision, batch=4)"), "bf16");
  EXPECT_EQ(truth("value(dtype, batch=4, status=done)"), "fp32|bf16");
  EXPECT_EQ(number("value(ms, precision=b*, batch=4|5)"), 50);
}

TEST(Expression, ReadsTheSpellingOfVersion01) {
  Expression sum = parse_expression("sum(ms, class=attention|normalisation, scope=normalisation)");
  EXPECT_EQ(sum.filters.at(0).pattern, "attention|normalization");
  EXPECT_EQ(sum.filters.at(1).pattern, "normalisation") << "the user's own name";
}

// Relative spreads of 2% and 4%, three seeds each: s^2 = (2 * 0.02^2 + 2 * 0.04^2) / 4, and
// t(0.975, 4) = 2.776.
TEST(Expression, ARatioOfSeedsIsThatOfTheirMeans) {
  Table table;
  for (auto& [variant, center, step] : {std::tuple{"a", 2.0, 0.02}, {"b", 1.0, 0.04}})
    for (int seed = 1; seed <= 3; ++seed)
      table.rows.push_back({{{"variant", variant}, {"seed", std::to_string(seed)}},
                            {{"loss", Value::number(center * (1 + (seed - 2) * step))}},
                            "",
                            ""});
  auto ratio_in = [&](const std::string& text) {
    Scope scope;
    scope.table = &table;
    return evaluate(parse_expression(text), text, scope);
  };
  Value r = ratio_in("ratio(loss, variant=a, variant=b)");
  EXPECT_NEAR(r.x, 2, 1e-12);
  double half = 2 * 2.776 * std::sqrt((2 * 0.02 * 0.02 + 2 * 0.04 * 0.04) / 4 * (2.0 / 3));
  EXPECT_NEAR(r.high - 2, half, 1e-3);
  EXPECT_NEAR(2 - r.low, half, 1e-3);
  EXPECT_EQ(ratio_in("ratio(loss, variant=a, variant=b, seed=2)").high, 2) << "one row each: exact";
  table.rows[0].keys["lr"] = "2";  // no repetition of the others
  EXPECT_FALSE(ratio_in("ratio(loss, variant=a, variant=b)").known());
}

// Losses 4, 3 and 2 after 100, 200 and 400 tokens: 3.5 is halfway from 100 to 200 in log x.
TEST(Expression, TokensUntilALoss) {
  Table table;
  auto curve = [&](const char* lr, double offset, double spread = 0) {
    for (int i = 0; i < 3; ++i)
      for (int seed = 1; seed <= (spread == 0 ? 1 : 3); ++seed)
        table.rows.push_back({{{"lr", lr}, {"steps", std::to_string(i)}, {"seed", std::to_string(seed)}},
                              {{"loss", Value::number((4.0 - i + offset) * (1 + (seed - 2) * spread))},
                               {"tokens", Value::number(100 << i)},
                               {"ms", Value::range(100 << i, 99 << i, 101 << i)}},
                              "",
                              ""});
  };
  auto value = [&](const std::string& text) {
    Scope scope;
    scope.table = &table;
    scope.name = [](const std::string&) { return Value::number(3.5); };
    return evaluate(parse_expression(text), text, scope);
  };
  curve("1", 0), curve("2", 1), curve("3", -0.25);
  EXPECT_NEAR(value("until(loss, tokens, 3.5, lr=1)").x, 100 * std::sqrt(2.0), 1e-9);
  EXPECT_NEAR(value("until(loss, tokens, target, lr=2)").x, 200 * std::sqrt(2.0), 1e-9);
  EXPECT_NEAR(value("until(loss, tokens, target)").x, 100 * std::pow(2, 0.25), 1e-9) << "the first of three";
  EXPECT_TRUE(value("until(loss, tokens, 3.5, lr=1)").exact());
  const Value ms = value("until(loss, ms, 3.5, lr=1)");
  EXPECT_EQ(ms.unit, Unit::ms);
  EXPECT_NEAR(ms.low, ms.x * 0.99, 1e-9) << "the noise of a time";
  EXPECT_EQ(value("until(loss, tokens, 1, lr=1)").unknown, "loss does not fall to 1: 2 at tokens 400");
  EXPECT_TRUE(value("until(loss, tokens, 4, lr=1)").unknown.starts_with("the shortest training"));
  // A spread of 1% with 2 + 2 + 2 degrees of freedom: half = 2.447 * 1% * y / sqrt(3).
  table.rows.clear(), curve("1", 0, 0.01);
  const Value v = value("until(loss, tokens, 3.5)");
  const double half = 2.447 * 0.01 / std::sqrt(3.0), from = 4 * (1 - half), to = 3 * (1 - half);
  EXPECT_NEAR(v.x, 100 * std::sqrt(2.0), 1e-9);
  EXPECT_NEAR(v.low, 100 * std::pow(2, (from - 3.5) / (from - to)), 0.01);
  EXPECT_GT(v.high, v.x);
  EXPECT_GT(value("until(loss, tokens, 2)").high, 400) << "beyond the longest training";
  table.rows[8].columns.erase("loss"), table.rows[8].keys["status"] = "failed";
  EXPECT_EQ(value("until(loss, tokens, 3.5)").unknown, "a training of every curve failed");
}

TEST(Expression, WhatHasNoValueSaysWhy) {
  EXPECT_EQ(value_of("value(ms, precision=tf32, batch=4)").unknown, "the CPU has no tf32");
  EXPECT_EQ(value_of("ratio(ms, precision=fp32, precision=tf32, batch=4) > 1").unknown, "the CPU has no tf32");
  EXPECT_EQ(value_of("sum(ms, batch=4)").unknown, "the CPU has no tf32");
  EXPECT_EQ(value_of("value(ms, batch=99)").unknown, "nothing was measured with batch=99");
  EXPECT_EQ(value_of("ratio(ms, precision=bf16, batch=99, precision=fp32, batch=4)").unknown,
            "nothing was measured with precision=bf16, batch=99");
  EXPECT_NE(value_of("value(ms, precision=fp32)").unknown.find("2 rows match"), std::string::npos);
  EXPECT_NE(value_of("1 / (2 - 2)").unknown.find("divided"), std::string::npos);
  EXPECT_NE(value_of("slope(ms, batch, batch=4)").unknown, "");
}

// A contradiction is certain only if no true numbers behind the printed figures fit together.
TEST(Expression, PrintedFiguresAreAsExactAsTheirDigits) {
  EXPECT_EQ(truth("printed_as(1 - printed(33, 1) / printed(42, 1), 24%, 1%)"), "yes") << "32.5 / 42.5";
  EXPECT_EQ(truth("printed_as(1 - 33 / 42, 24%, 1%)"), "no");
  EXPECT_EQ(truth("printed_as(1 - printed(103, 1) / printed(133, 1), 15%, 1%)"), "no");
  EXPECT_EQ(truth("printed_as(2.64, 2.6, 0.1)"), "yes");
  EXPECT_EQ(truth("printed_as(2.66, 2.6, 0.1)"), "no");
  EXPECT_EQ(truth("printed(78, 1) > printed(76, 1)"), "yes");
  EXPECT_NE(truth("printed(77, 1) > printed(77, 1)").find("rounding of printed figures"), std::string::npos);
  EXPECT_NE(truth("2 * printed(77, 1) > 154.5").find("within the rounding"), std::string::npos);
  // 100 +- 2 is measured: noise beyond [99.5 .. 100.5] leaves it open.
  EXPECT_NE(truth("printed_as(value(ms, precision=fp32, batch=4), 100, 1)").find("inconclusive"), std::string::npos);
  EXPECT_EQ(truth("printed_as(value(ms, precision=fp32, batch=4), 100, 10)"), "yes");
  EXPECT_EQ(value_of("printed_as(value(ms, batch=99), 1, 1)").unknown, "nothing was measured with batch=99");
}

TEST(Expression, TheNoiseLeavesComparisonsOpen) {
  EXPECT_EQ(truth("value(ms, precision=fp32, batch=4) > 97"), "yes");
  EXPECT_EQ(truth("value(ms, precision=fp32, batch=4) > 103"), "no");
  EXPECT_NE(truth("value(ms, precision=fp32, batch=4) > 101").find("within noise"), std::string::npos);
  // 100 against 99: intervals overlap.
  EXPECT_NE(truth("value(ms, precision=fp32, batch=4) > value(ms, precision=bf16, batch=8)").find("within noise"),
            std::string::npos);
  EXPECT_EQ(truth("close(value(ms, precision=fp32, batch=4), 100, 5%)"), "yes");
  EXPECT_EQ(truth("close(value(ms, precision=fp32, batch=4), 120, 5%)"), "no");
  EXPECT_NE(truth("close(value(ms, precision=fp32, batch=4), 100, 1%)").find("within noise"), std::string::npos);
  EXPECT_EQ(truth("2 == 2 and 2 != 3 and \"a\" == \"a\""), "yes");
}

// The rows fp32 are 100 [98 .. 102] at a batch of 4 and 200 [196 .. 204] at 8.
TEST(Expression, NoiseReachesLinesAndRoundedNumbers) {
  Value slope = value_of("slope(ms, batch, precision=fp32)"), start = value_of("intercept(ms, batch, precision=fp32)");
  EXPECT_EQ(slope.x, 25);
  EXPECT_EQ(slope.low, (196.0 - 102) / 4);
  EXPECT_EQ(slope.high, (204.0 - 98) / 4);
  EXPECT_EQ(start.x, 0);
  EXPECT_EQ(start.low, 2 * 98 - 204.0);
  EXPECT_EQ(start.high, 2 * 102 - 196.0);
  EXPECT_EQ(truth("slope(ms, batch, precision=fp32) > 23"), "yes");
  EXPECT_NE(truth("intercept(ms, batch, precision=fp32) > -1").find("within noise"), std::string::npos);
  EXPECT_EQ(truth("linearity(ms, batch, precision=fp32) >= 0.99"), "yes");
  EXPECT_NE(truth("linearity(ms, batch, precision=fp32) >= 0.999").find("within noise"), std::string::npos);
  EXPECT_EQ(truth("linearity(bytes, batch, precision=fp32) == 1"), "yes") << "exact";
  Value rounded = value_of("rounded(value(ms, precision=fp32, batch=4) / 10, 0)");
  EXPECT_EQ(rounded.low, 10);
  EXPECT_EQ(rounded.high, 10);
  EXPECT_NE(truth("rounded(value(ms, precision=fp32, batch=4), 0) == 100").find("within noise"), std::string::npos);
  Value rest = value_of("remainder(value(ms, precision=fp32, batch=4), 30)");
  EXPECT_EQ(rest.low, 8);
  EXPECT_EQ(rest.high, 12);
  rest = value_of("remainder(value(ms, precision=fp32, batch=4), 50)");
  EXPECT_EQ(rest.low, 0) << "98 leaves 48, 102 leaves 2";
  EXPECT_EQ(rest.high, 50);
}

// R^2 is within its interval for every y within theirs.
TEST(Expression, TheIntervalOfLinearityCoversEveryLine) {
  const double x[] = {1, 2, 4, 8}, y[] = {11, 19, 42, 79}, half[] = {1, 2, 3, 4};
  auto linearity = [&](auto value) {
    Table table;
    for (int i = 0; i < 4; ++i)
      table.rows.push_back({{{"batch", std::to_string(int(x[i]))}}, {{"ms", value(i)}}, "", ""});
    Scope scope;
    scope.table = &table;
    const std::string text = "linearity(ms, batch)";
    return evaluate(parse_expression(text), text, scope);
  };
  Value all = linearity([&](int i) { return Value::range(y[i], y[i] - half[i], y[i] + half[i]); });
  double least = 1;
  for (int corner = 0; corner < 16; ++corner) {
    Value one = linearity([&](int i) { return Value::number(y[i] + ((corner >> i & 1) ? half[i] : -half[i])); });
    least = std::min(least, one.x);
    EXPECT_GE(one.x, all.low);
    EXPECT_LE(one.x, all.high);
  }
  EXPECT_LT(all.low, least);
  EXPECT_GT(all.low, 0.9) << "and is of use";
}

// Two rows that noise does not tell apart are both where the largest value is.
TEST(Expression, NoiseLeavesTheKeyOfTheLargestOpen) {
  Table table;
  auto row = [&](const char* tile, const char* kernel, Value ms) {
    table.rows.push_back({{{"tile", tile}, {"kernel", kernel}}, {{"ms", ms}}, "", ""});
  };
  row("16", "a", Value::range(20, 19, 21));
  row("64", "b", Value::range(8.04, 8, 8.1));
  row("128", "c", Value::range(7.99, 7.9, 8.05));
  Scope scope;
  scope.table = &table;
  auto of = [&](const std::string& text) { return evaluate(parse_expression(text), text, scope); };
  Value best = of("where_min(ms, tile)");
  EXPECT_EQ(best.x, 128);
  EXPECT_EQ(best.low, 64);
  EXPECT_EQ(describe(of("where_min(ms, tile) >= 64")), "yes");
  EXPECT_EQ(describe(of("where_min(ms, tile) == 16")), "no");
  EXPECT_NE(describe(of("where_min(ms, tile) == 128")).find("within noise"), std::string::npos);
  EXPECT_EQ(of("where_min(ms, kernel)").unknown, "noise does not tell kernel c from b");
  EXPECT_EQ(of("where_max(ms, kernel)").text, "a");
}

TEST(Expression, FiguresHaveUnitsAndFewDigits) {
  Table table;
  table.rows.push_back({{{"batch", "4"}},
                        {{"planned_bytes", Value::number(1.45063e10)},
                         {"ms", Value::range(340.123, 338.9, 341.2)},
                         {"executed_flops", Value::number(2.18e15)},
                         {"weights_per_parameter", Value::number(2.0034)},
                         {"parameters", Value::number(124439808)}},
                        "",
                        ""});
  Scope scope;
  scope.table = &table;
  auto text = [&](const std::string& t) { return describe(evaluate(parse_expression(t), t, scope)); };
  EXPECT_EQ(text("value(planned_bytes)"), "14.51 GB");
  EXPECT_EQ(text("value(planned_bytes) / 1GB"), "14.5063") << "GB over GB";
  EXPECT_EQ(text("value(planned_bytes) / 2"), "7.253 GB");
  EXPECT_EQ(text("max(ms)"), "340.1 ms [338.9 .. 341.2]");
  EXPECT_EQ(text("max(ms) / 1s < 1"), "yes");
  EXPECT_EQ(text("value(executed_flops)"), "2.18 PFLOP");
  EXPECT_EQ(text("value(weights_per_parameter)"), "2.003 B");
  EXPECT_EQ(text("value(parameters)"), "124.4 million");
  EXPECT_EQ(text("50304 + 0.5"), "50304.5");
  EXPECT_EQ(text("1610612736 * 1"), "1.611 billion");
  EXPECT_EQ(text("value(ms) < 340"),
            "inconclusive: the difference is within noise: 340.1 ms [338.9 .. 341.2] against 340 ms");
}

TEST(Expression, PrintsExactNumbersWithFourDecimals) {
  const std::pair<double, const char*> numbers[] = {
      {1.16387, "1.1639"},   {0.00891807, "0.0089"}, {10.0001, "10.0001"}, {1.00004, "1.00004"},
      {0.5, "0.5"},          {1.99996, "1.99996"},   {0.00002, "2e-05"},   {3, "3"},
      {-0.70083, "-0.7008"}, {12345.678, "12345.7"}};
  for (auto& [x, text] : numbers) EXPECT_EQ(describe_number(x), text);
}

TEST(Expression, TruthsThatCannotBeToldAreDecidedByTheOthers) {
  const std::string open = "value(ms, precision=tf32, batch=4) > 1";
  EXPECT_EQ(truth(open + " and 1 > 2"), "no");
  EXPECT_EQ(truth(open + " or 2 > 1"), "yes");
  EXPECT_EQ(truth("not (" + open + ")"), "inconclusive: the CPU has no tf32");
  EXPECT_EQ(truth(open + " and 2 > 1"), "inconclusive: the CPU has no tf32");
}

TEST(Expression, AccumulatesAsTensorsDo) {
  EXPECT_NEAR(number("accumulate(1000, 0.01, \"fp32\", \"fp32\")"), 10.0001, 5e-5);
  EXPECT_NEAR(number("accumulate(1000, 0.01, \"fp16\", \"fp16\")"), 9.9531, 5e-5);
  EXPECT_NEAR(number("accumulate(1000, 0.01, \"fp32\", \"fp16\")"), 10.0021, 5e-5);
  // fp16 ends at 65504, bf16 has 8 bits: 64 is lost beside 16384.
  EXPECT_TRUE(std::isinf(number("sum_of_squares(1600, 8, \"fp16\", \"fp16\")")));
  EXPECT_EQ(number("sum_of_squares(1600, 8, \"fp32\", \"fp16\")"), 102400);
  EXPECT_EQ(number("sum_of_squares(1600, 8, \"bf16\", \"bf16\")"), 16384);
}

TEST(Expression, MistakesNameTheirPlace) {
  struct Case {
    const char* text;
    int at;
    const char* said;
  };
  for (auto& c : std::vector<Case>{{"1 +", 3, "the end"},
                                   {"1 + * 2", 4, "expected a"},
                                   {"(1 + 2", 6, "')'"},
                                   {"1 2", 2, "an operator or the end"},
                                   {"value(mss, batch=4)", 6, "'ms'"},
                                   {"1 + rato(ms)", 4, "'ratio'"},
                                   {"value(ms, prcision=fp32)", 10, "'precision'"},
                                   {"value(ms, batch=)", 16, "a value such as"},
                                   {"ms > 1", 0, "value(ms"},
                                   {"sevn > 1", 0, "'seven'"},
                                   {"value(ms, bytes)", 0, "takes 1 argument"},
                                   {"abs(1, batch=4)", 7, "reads no table"},
                                   {"3GiBs", 4, "unknown unit"},
                                   {"1e999", 0, "not a number"},
                                   {"\"open", 0, "not closed"},
                                   {"", 0, "the end"},
                                   {"1 and", 5, "the end"}}) {
    auto [at, said] = mistake(c.text);
    EXPECT_EQ(at, c.at) << c.text << ": " << said;
    EXPECT_NE(said.find(c.said), std::string::npos) << c.text << ": " << said;
  }
  EXPECT_EQ(mistake("ratio(ms, precision=fp32, precision=bf16, batch=4) >= 1.5").first, -1);
}

TEST(Expression, NestingAndLengthAreBounded) {
  EXPECT_NE(mistake(std::string(3000, '(')).second.find("deep"), std::string::npos);
  EXPECT_NE(mistake(std::string(3000, '-') + "1").second.find("deep"), std::string::npos);
  EXPECT_NE(mistake(std::string(5000, '1')).second.find("longer"), std::string::npos);
  std::string chain = "1";
  for (int i = 0; i < 500; ++i) chain += "+1";
  EXPECT_NE(mistake(chain).second.find("100 operands"), std::string::npos);
}

TEST(Expression, WrongTypesAreMistakes) {
  EXPECT_THROW(value_of("1 and 2"), ExpressionError);
  EXPECT_THROW(value_of("\"a\" + 1"), ExpressionError);
  EXPECT_THROW(value_of("\"a\" < \"b\""), ExpressionError);
  EXPECT_THROW(value_of("parameters(\"gpt3\")"), ExpressionError);
  EXPECT_THROW(value_of("accumulate(10, 1, \"fp33\", \"fp32\")"), ExpressionError);
  EXPECT_THROW(value_of("sum_of_squares(10, 1, \"fp16\", \"f16\")"), ExpressionError);
}

// The kernel with the most time, its share and its launches; several rows may be of one kernel.
TEST(Expression, TopSumsRowsOfAKey) {
  Table table;
  auto row = [&](const char* kernel, const char* phase, double ms, double launches) {
    Row r;
    r.keys = {{"name", kernel}, {"phase", phase}};
    r.columns = {{"kernel_ms", Value::number(ms)}, {"kernel_launches", Value::number(launches)}};
    table.rows.push_back(r);
  };
  row("softmax", "forward", 5, 12);
  row("gemm_a", "forward", 4, 24);
  row("gemm_a", "forward", 3, 1);
  row("gemm_b", "backward", 9, 48);
  row("gemm_a", "backward", 1, 2);
  Row other;  // of another kind
  other.keys = {{"phase", "forward"}};
  other.columns = {{"block_bytes", Value::number(1e9)}};
  table.rows.push_back(other);
  Scope scope;
  scope.table = &table;
  auto of = [&](const std::string& text) { return evaluate(parse_expression(text), text, scope); };
  EXPECT_EQ(of("top(kernel_ms, name, phase=forward)").text, "gemm_a");
  EXPECT_EQ(of("top_launches(kernel_ms, name, phase=forward)").x, 25);
  EXPECT_NEAR(of("top_share(kernel_ms, name, phase=forward)").x, 7.0 / 12, 1e-12);
  EXPECT_EQ(of("top(kernel_ms, name, phase=backward)").text, "gemm_b");
  EXPECT_EQ(of("top_launches(kernel_ms, name, phase=backward)").x, 48);
  EXPECT_EQ(of("top(kernel_ms, name)").text, "gemm_b");
  for (const char* none : {"top(kernel_ms, name, phase=update)", "top_share(kernel_ms, name, phase=update)",
                           "top_launches(kernel_ms, name, phase=update)"})
    EXPECT_FALSE(of(none).known()) << none;
}

}  // namespace crest::lab
