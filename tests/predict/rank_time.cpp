// Times of collectives between ranks: measured ones, and their time in a step.
#include "predict/rank_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "bench/phase_runner.h"
#include "core/error.h"
#include "model/parameters.h"
#include "plan/recipe_settings.h"
#include "predict/exposed_time.h"
#include "predict/links.h"
#include "predict/planned_time.h"
#include "predict/step_time.h"
#include "predict/waiting_time.h"
#include "profile/overlap.h"
#include "program/barriers.h"

namespace crest::test {

namespace {

CollectiveTable table(Collective c, int ranks, double start, double per_byte, const char* dtype = "fp32") {
  CollectiveTable t;
  t.collective = c, t.ranks = ranks, t.dtype = dtype;
  t.library = "nccl 2.28.9", t.date = "2026-11-25T12:00:00Z", t.crest_version = "0.1";
  for (double bytes : {8.0, 1e6, 1e8}) t.points.push_back({bytes, start + per_byte * bytes});
  return t;
}

// Every collective takes 1 ms and so much a byte of its buffer.
CollectiveTimes times(int ranks, double per_byte) {
  CollectiveTimes all;
  for (Collective c : step_collectives) all.add(table(c, ranks, 1e-3, per_byte));
  return all;
}

CompiledSession rank_session(const std::string& ranks, const std::string& shard,
                             const std::string& by = "communicator") {
  Device d = described_device(find_data_sheet("h100"));
  Recipe r;
  settings_of(r).apply({{"model", {"gpt2-124M"}},
                        {"batch", {"1"}},
                        {"seq", {"64"}},
                        {"precision", {"bf16"}},
                        {"shard", {shard}},
                        {"kernel", {"all_gather=*." + by, "reduce_scatter=*." + by}},
                        {"ranks", {ranks}}});
  return compile_phase(resolve(r, d), d, BenchPhase::step, {.verify = false});
}

}  // namespace

TEST(CollectiveTable, IsALineBetweenSizes) {
  CollectiveTable t;
  t.points = {{8, 1}, {108, 2}, {208, 4}};
  EXPECT_DOUBLE_EQ(t.seconds(1), 1) << "less than the smallest is no faster";
  EXPECT_DOUBLE_EQ(t.seconds(58), 1.5);
  EXPECT_DOUBLE_EQ(t.seconds(158), 3);
  EXPECT_DOUBLE_EQ(t.seconds(408), 8) << "beyond the largest: as between the last two";
  t.points = {{8, 1}, {108, 3}, {208, 2}};
  EXPECT_DOUBLE_EQ(t.seconds(158), 3) << "a larger size does not take less";
  EXPECT_DOUBLE_EQ(t.seconds(408), 3) << "beyond the largest: the mean slope, where the last is less";
}

TEST(CollectiveTimes, FindsTheNearest) {
  CollectiveTimes all = times(2, 1e-9);
  EXPECT_TRUE(all.covers(2, false));
  EXPECT_FALSE(all.covers(4, false));
  EXPECT_TRUE(all.covers(4, true));
  all.add(table(Collective::all_reduce, 8, 1, 1));
  EXPECT_EQ(all.find(Collective::all_reduce, 4, "fp32")->ranks, 8) << "the larger of two";
  EXPECT_EQ(all.find(Collective::all_reduce, 3, "fp32")->ranks, 2);
  all.add(table(Collective::all_reduce, 8, 1, 1, "bf16"));
  EXPECT_EQ(all.find(Collective::all_reduce, 8, "bf16")->dtype, "bf16");
  EXPECT_EQ(all.find(Collective::all_reduce, 8, "fp16")->ranks, 8) << "of another dtype rather than none";
  size_t n = all.tables().size();
  all.add(table(Collective::all_reduce, 8, 2, 1));
  EXPECT_EQ(all.tables().size(), n) << "the new one is in place of the old one";
  EXPECT_EQ(CollectiveTimes().find(Collective::all_gather, 2, "fp32"), nullptr);
}

TEST(CollectiveTimes, SurviveAFileAndRefuseABadOne) {
  CollectiveTimes all = times(2, 1e-9);
  auto json = all.to_json();
  EXPECT_EQ(CollectiveTimes::from_json(json, "x").to_json(), json);
  auto refused = [&](const char* pointer, const nlohmann::ordered_json& value) {
    auto bad = json;
    bad[nlohmann::ordered_json::json_pointer(pointer)] = value;
    EXPECT_THROW(CollectiveTimes::from_json(bad, "x"), Error) << pointer << " " << value;
  };
  refused("/0", 1);
  refused("/0/collective", "broadcast");
  refused("/0/ranks", 1);
  refused("/0/ranks", "two");
  refused("/0/library", 2);
  refused("/0/date", "");
  refused("/0/bytes_and_ms", {1, 2});
  refused("/0/bytes_and_ms/0", {1, 2, 3});
  refused("/0/bytes_and_ms/0/0", 1e9);  // not ascending
  refused("/0/bytes_and_ms/1/1", 0);    // no time
  refused("/0/bytes_and_ms/1/1", "abc");
  EXPECT_THROW(CollectiveTimes::from_json({{"a", 1}}, "x"), Error);
}

// The step's collectives, counted by hand: a start each, and their bytes.
TEST(RankTimes, AreThoseOfTheTable) {
  constexpr double per_byte = 1e-9;
  CollectiveTimes measured = times(2, per_byte);
  DataSheet sheet = find_data_sheet("h100");
  CompiledSession s = rank_session("2", "optimizer");
  RankTimes by_table(s, &measured, &sheet), by_sheet(s, nullptr, &sheet);
  ASSERT_TRUE(by_table.possible());
  EXPECT_TRUE(by_table.source().measured);
  EXPECT_FALSE(by_sheet.source().measured);
  double sum = 0, expected = 0, sheets = 0;
  int collectives = 0;
  for (auto& row : step_rows(s).instrs) {
    if (!communicates(row)) continue;
    ++collectives;
    sum += by_table.ms(row), sheets += by_sheet.ms(row);
    const Program& p = s.programs[size_t(s.find(row.program))].program;
    const Instr& i = p.code[size_t(row.index)];
    double bytes = 0;
    if (row.op == "all_gather")
      bytes = double(p.at(i.out[0]).bytes());
    else if (row.op == "reduce_scatter")
      bytes = double(p.at(i.in[0]).bytes());
    else
      for (ValueId v : i.in) bytes += double(p.at(v).bytes());
    expected += row.calls * 1e3 * (1e-3 + per_byte * std::max(8.0, bytes));
  }
  EXPECT_GE(collectives, 4) << "gradients and weights, loss and norm";
  EXPECT_NEAR(sum / expected, 1, 1e-6);
  EXPECT_GT(std::abs(sheets / sum - 1), 0.1);
  Calibration c = *find_calibration("", s.device);
  EXPECT_TRUE(c.collectives.covers(2, false)) << "those of two H100 come with Crest";
  c.collectives = {};
  EXPECT_NEAR(planned_time(s, c, &sheet).collectives_ms / sheets, 1, 1e-9);
  c.collectives = measured;
  PlannedTime t = planned_time(s, c, &sheet);
  EXPECT_NEAR(t.collectives_ms / sum, 1, 1e-9);
  EXPECT_NE(text_of(t, c).find("as measured between 2 ranks (nccl 2.28.9, 2026-11-25); none"), std::string::npos)
      << text_of(t, c);
  EXPECT_EQ(to_json(t, c)["collectives"]["source"], "measured");
}

// By copy engines: the other ranks' shards at 307 of 450 GB/s, and kernels for what stays.
TEST(RankTimes, OfCopyEnginesAreTheLinkAndTheMemory) {
  const DataSheet sheet = find_data_sheet("h100");
  const CompiledSession s = rank_session("2", "gradients", "copy_engine");
  const CollectiveTimes measured = times(2, 1e-9);
  const RankTimes by_sheet(s, nullptr, &sheet), by_table(s, &measured, &sheet);
  int rows = 0, met = 0;
  for (auto& row : step_rows(s).instrs) {
    if (row.op != "all_gather" && row.op != "reduce_scatter") continue;
    ++rows;
    const Program& p = s.programs[size_t(s.find(row.program))].program;
    const Instr& i = p.code[size_t(row.index)];
    const bool gathers = row.op == "all_gather";
    const double shard = double(p.at(gathers ? i.in[0] : i.out[0]).bytes());
    const double memory = 3.73 / 4.8 * sheet.bandwidth, link = 307.0 / 450 * sheet.link_bandwidth / 2;
    const int barriers = (barrier_before(i) != no_barrier) + (barrier_after(i) != no_barrier);
    const double ms = 0.0065 + barriers * 0.013 + 1e3 * (shard / link + (gathers ? 2 : 3) * shard / memory);
    met += barriers;
    EXPECT_NEAR(by_sheet.ms(row) / row.calls, ms, 1e-9) << row.op;
    EXPECT_NEAR(by_table.ms(row) / row.calls, ms, 1e-9) << "the table is of NCCL";
  }
  EXPECT_GE(rows, 10) << "buckets";
  EXPECT_GE(met, 2);
}

// Eight ranks, measurements of two ranks only: scaled by the bytes sent by each, with a wider
// range.
// A kernel adds the bias of a product to the summed rows.
TEST(RankTimes, CountTheBiasOfSummedRows) {
  Device d = described_device(find_data_sheet("h200"));
  Recipe r;
  settings_of(r).apply({{"model", {"gpt2-124M"}},
                        {"batch", {"4"}},
                        {"precision", {"bf16"}},
                        {"mesh", {"tensor=2"}},
                        {"tensor-overlap", {"off"}}});
  CompiledSession s = compile_phase(resolve(r, d), d, BenchPhase::step, {.verify = false});
  const CollectiveTimes measured = times(2, 1e-11);
  RankTimes ranks(s, &measured, nullptr);
  std::map<std::string, std::set<double>> ms;  // by phase
  for (auto& row : step_rows(s).instrs)
    if (row.op == "scatter_rows" && row.layer > 0) ms[row.phase].insert(std::round(1e6 * ranks.ms(row) / row.calls));
  ASSERT_EQ(ms["forward"].size(), 1u);
  ASSERT_EQ(ms["backward"].size(), 1u);
  const double bias = *ms["forward"].begin() - *ms["backward"].begin();  // ns
  EXPECT_NEAR(bias, 16e3 * (2048 * 768) / (2048 * 1600), 5) << "gradients have none";
}

TEST(RankTimes, AreScaledToOtherRanks) {
  constexpr double per_byte = 1e-9;
  CollectiveTimes measured = times(2, per_byte);
  CompiledSession s = rank_session("8", "none");
  RankTimes eight(s, &measured, nullptr);
  ASSERT_TRUE(eight.possible());
  EXPECT_GT(eight.source().factor, RankTimes(rank_session("2", "none"), &measured, nullptr).source().factor);
  const ProfileInstr* largest = nullptr;
  Profile rows = step_rows(s);
  for (auto& row : rows.instrs)
    if (communicates(row) && (!largest || row.bytes > largest->bytes)) largest = &row;
  const Program& p = s.programs[size_t(s.find(largest->program))].program;
  double bytes = 0;
  for (ValueId v : p.code[size_t(largest->index)].in) bytes += double(p.at(v).bytes());
  // A ring of eight sends 2 x 7/8 of the bytes, one of two 2 x 1/2.
  EXPECT_NEAR(eight.ms(*largest) / (1e3 * (1e-3 + per_byte * bytes * 7 / 8 * 2)), 1, 0.01);
  // Ranks of a CPU share it: only measured numbers of ranks are predicted.
  CompiledSession cpu = rank_session("8", "none");
  cpu.device.kind = "cpu";
  EXPECT_FALSE(RankTimes(cpu, &measured, nullptr).possible());
  EXPECT_FALSE(RankTimes(s, nullptr, nullptr).possible());
}

// Sums over four H200 as predicted from two, next to docs/results/h200/comm_4gpus.txt. Of a larger
// group, a smaller part is a rank's own.
TEST(RankTimes, ForMoreGpusLessIsARanksOwn) {
  const std::pair<double, double> measured_2[] = {{1e9, 3.074e-3}, {4e9, 11.623e-3}},
                                  measured_4[] = {{1e9, 4.298e-3}, {4e9, 16.588e-3}};
  DataSheet sheet = find_data_sheet("h200");
  CollectiveTimes times;
  for (Collective c : step_collectives) {
    CollectiveTable t = table(c, 2, 0, 0);
    t.points.clear();
    for (auto [bytes, seconds] : measured_2) t.points.push_back({bytes, seconds});
    times.add(t);
  }
  const CompiledSession four = rank_session("4", "none"), two = rank_session("2", "none");
  const RankTimes rates(four, &times, &sheet), unscaled(four, &times, nullptr), of_two(two, &times, &sheet);
  for (auto [bytes, seconds] : measured_4) {
    const double sent = bytes * 2 * 3 / 4;
    EXPECT_NEAR(rates.in_node_ms(Collective::all_reduce, sent, 4, "fp32") / (1e3 * seconds), 1, 0.03) << bytes;
    EXPECT_GT(unscaled.in_node_ms(Collective::all_reduce, sent, 4, "fp32") / (1e3 * seconds), 1.03) << bytes;
    EXPECT_DOUBLE_EQ(of_two.in_node_ms(Collective::all_reduce, bytes, 2, "fp32"),
                     1e3 * times.tables()[0].seconds(bytes));
  }
  // A transfer to one rank copies nothing of its own, whatever the number of stages.
  EXPECT_DOUBLE_EQ(rates.in_node_ms(Collective::send_receive, 1e9, 4, "fp32"),
                   of_two.in_node_ms(Collective::send_receive, 1e9, 2, "fp32"));
}

// Stages send by the table of send-receive if it was measured, else by that of all-gather.
TEST(RankTimes, TransfersHaveATableOfTheirOwn) {
  Device d = described_device(find_data_sheet("h100"));
  Recipe r;
  settings_of(r).apply({{"model", {"gpt2-124M"}},
                        {"batch", {"1"}},
                        {"seq", {"64"}},
                        {"precision", {"bf16"}},
                        {"mesh", {"pipeline=2"}},
                        {"grad-accumulation", {"2"}}});
  const CompiledSession s = compile_phase(resolve(r, d), d, BenchPhase::step, {.verify = false});
  CollectiveTimes gathers = times(2, 1e-9), both = gathers;
  both.add(table(Collective::send_receive, 2, 0.5e-3, 3e-9));
  EXPECT_EQ(CollectiveTimes::from_json(both.to_json(), "x").tables().size(), 4U);
  const RankTimes by_gathers(s, &gathers, nullptr), by_transfers(s, &both, nullptr);
  int transfers = 0;
  for (auto& row : step_rows(s).instrs) {
    if (row.op != "send") continue;  // the receiver waits for it
    const Program& p = s.programs[size_t(s.find(row.program))].program;
    const Instr& i = p.code[size_t(row.index)];
    const double bytes = double(p.at(i.in[0]).bytes());
    // A gather of two ranks sends half of its result.
    EXPECT_NEAR(by_gathers.ms(row) / row.calls, 1e3 * (1e-3 + 1e-9 * 2 * bytes), 1e-9);
    EXPECT_NEAR(by_transfers.ms(row) / row.calls, 1e3 * (0.5e-3 + 3e-9 * bytes), 1e-9);
    ++transfers;
  }
  EXPECT_GT(transfers, 0);
}

// The innermost axis has consecutive ranks, so it stays inside of a node as long as it divides it.
TEST(GroupSpan, CountsTheNodesOfAGroup) {
  const Mesh mesh{{Axis::tensor, 8}, {Axis::data, 4}, {Axis::pipeline, 2}};
  auto nodes = [&](Axes axes, int node_gpus) { return span_of(mesh, axes, node_gpus).nodes; };
  EXPECT_EQ(nodes(Axis::tensor, 8), 1);
  EXPECT_EQ(nodes(Axis::tensor, 4), 2);
  EXPECT_EQ(nodes(Axis::tensor, 6), 2) << "the second group has ranks of two nodes";
  EXPECT_EQ(nodes(Axis::data, 8), 4);
  EXPECT_EQ(nodes(Axis::data, 16), 2);
  EXPECT_EQ(nodes(Axis::data | Axis::tensor, 8), 4);
  EXPECT_EQ(nodes(Axes::all(), 8), 8);
  EXPECT_EQ(span_of(mesh, Axis::data, 16).ranks_of_node(), 2);
}

// By hand, with NCCL's latencies: 8.4 us, 3.4 us a hop in a node, 14 us a hop between nodes.
TEST(NetworkTime, IsTheSlowestLinkAndTheHops) {
  const double rate = 50e9, sent = 1e9, wire = 1e3 * sent / (0.9 * rate);
  auto ms = [&](Collective c, GroupSpan span, double in_node) {
    return network_ms({c, false, sent, span}, in_node, rate);
  };
  // One rank of each node has a single card.
  EXPECT_NEAR(ms(Collective::all_gather, {4, 4}, 7), wire + 8.4e-3 + 3 * 14e-3, 1e-9);
  // Eight ranks of each node share eight cards; the ring inside of the node is slower here.
  EXPECT_NEAR(ms(Collective::all_gather, {16, 2}, 7), 7 + 8.4e-3 + 14 * 3.4e-3 + 14e-3, 1e-9);
  EXPECT_NEAR(ms(Collective::all_gather, {16, 2}, 1), wire / 8 + 8.4e-3 + 14 * 3.4e-3 + 14e-3, 1e-9);
  // A sum of many nodes goes over trees.
  EXPECT_NEAR(ms(Collective::all_reduce, {64, 64}, 7), wire + 8.4e-3 + 2 * 6 * 14e-3, 1e-9);
  EXPECT_NEAR(network_ms({Collective::all_gather, true, sent, {4, 4}}, 7, rate), wire + 8.4e-3 + 14e-3, 1e-9);
  EXPECT_GT(network_factor(2), 1.5) << "more than between GPUs of one node";
  EXPECT_GT(network_factor(1024), network_factor(2));
}

// NCCL's ring of all ranks, one for each network card, against sums inside the nodes, then between
// them, then copies inside: both send the same bytes over a card, up to one rank's share. The ring
// keeps both links busy at once, so it takes the slower link's time, not the sum. Hops: NCCL's
// src/graph/tuning.cc, latencies[...] = base + (nsteps - nInterSteps) intra + nInterSteps inter.
TEST(NetworkTime, OfARingSendsTheBytesOfAHierarchicalSum) {
  const double size = 4e9, rate = 50e9, link = 300e9;
  for (auto [nodes, gpus] : {std::pair(2, 8), {16, 8}, {2048, 8}, {4, 4}}) {
    const int ranks = nodes * gpus;
    const double sent = 2.0 * (ranks - 1) / ranks * size, in_node = 1e3 * sent / link;
    const double ms = network_ms({Collective::all_reduce, false, sent, {ranks, nodes}}, in_node, rate);
    const double between = 2.0 * (nodes - 1) / nodes * size / gpus, inside = 2.0 * (gpus - 1) / gpus * size;
    const double hierarchical = 1e3 * (between / (0.9 * rate) + inside / link);
    const double steps = 2.0 * (ranks - 1), ring = 8.4e-3 + (steps - 2 * nodes) * 3.4e-3 + 2 * nodes * 14e-3;
    const double tree = 8.4e-3 + 2 * ((gpus - 1) * 4e-3 + std::log2(nodes) * 14e-3);
    const double hops = std::min(ring, tree);
    const double wire = 1e3 * sent / gpus / (0.9 * rate);
    EXPECT_NEAR(ms, hops + std::max(wire, in_node), 1e-9);
    EXPECT_NEAR(sent / gpus / between, (ranks - 1.0) / ranks * nodes / (nodes - 1), 1e-12);
    EXPECT_LT(ms - hops, hierarchical) << "links work at once";
  }
}

TEST(RankTimes, OfManyNodesAreBoundByTheNetwork) {
  DataSheet sheet = find_data_sheet("h100");
  const CompiledSession s = rank_session("1024", "none");
  RankTimes many(s, nullptr, &sheet), one(rank_session("8", "none"), nullptr, &sheet);
  ASSERT_TRUE(many.possible());
  EXPECT_EQ(many.source().nodes, 128);
  EXPECT_EQ(one.source().nodes, 1);
  EXPECT_GT(many.source().factor, one.source().factor);
  const FloorTime fast = floor_time(s, sheet);
  EXPECT_GT(fast.collectives_ms, floor_time(rank_session("8", "none"), sheet).collectives_ms);
  ASSERT_EQ(fast.collectives_by_axes.count("data"), 1U);
  EXPECT_NEAR(fast.collectives_by_axes.at("data"), fast.collectives_ms, 1e-9);
  // One of eight sends leaves the node; a sum sends its bytes almost twice.
  const LinkTraffic& sent = fast.traffic.at("data");
  EXPECT_NEAR(sent.in_node, 7 * sent.between_nodes, 1e-6 * sent.in_node);
  const double gradients = 2.0 * 1023 / 1024 * 4 * double(parameter_count(s.recipe.model));
  EXPECT_NEAR((sent.in_node + sent.between_nodes) / gradients, 1, 0.1);
  EXPECT_NE(text_of(fast).find("a rank sends"), std::string::npos) << text_of(fast);
  EXPECT_EQ(floor_time(rank_session("8", "none"), sheet).traffic.at("data").between_nodes, 0);
  EXPECT_TRUE(set_links(sheet, "nvlink,100Gb").between);
  EXPECT_GT(floor_time(s, sheet).collectives_ms, fast.collectives_ms);
  EXPECT_NE(text_of(fast).find("1024 ranks of 128 nodes of 8 GPUs"), std::string::npos) << text_of(fast);
  EXPECT_NE(text_of(fast).find("never"), std::string::npos);
  sheet.network_bandwidth = 0;
  EXPECT_FALSE(RankTimes(s, nullptr, &sheet).possible());
  EXPECT_NE(step_time(s, nullptr, &sheet).why_not.find("--link nvlink,400Gb"), std::string::npos);
}

TEST(Links, AreParsed) {
  auto set = [](const char* text) {
    DataSheet sheet = find_data_sheet("h100");
    set_links(sheet, text);
    return std::pair(sheet.link_bandwidth, sheet.network_bandwidth);
  };
  EXPECT_EQ(set("nvlink,400Gb"), std::pair(900e9, 100e9));
  EXPECT_EQ(set("200Gb"), std::pair(900e9, 50e9));
  EXPECT_EQ(set("pcie,25GB"), std::pair(128e9, 50e9));
  EXPECT_EQ(set("300GB,50GB"), std::pair(600e9, 100e9));
  EXPECT_EQ(set("nvlink"), std::pair(900e9, 100e9));
  for (const char* bad :
       {"", "400", "400Gb,nvlink", "nvlink,0Gb", "nvlink,infGb", "nvlink,400Gb,1Gb", "nvlink,-1Gb", ","})
    EXPECT_THROW(set(bad), Error) << bad;
}

// Exact: 1 / sqrt(pi) of two, 3 / (2 sqrt(pi)) of three (H. A. David, Order Statistics). The
// others: Harter 1961, table 1.
TEST(WaitingTime, IsTheExpectedMaximum) {
  const double root_pi = std::sqrt(std::acos(-1.0));
  EXPECT_EQ(expected_maximum(1), 0);
  EXPECT_NEAR(expected_maximum(2), 1 / root_pi, 1e-12);
  EXPECT_NEAR(expected_maximum(3), 1.5 / root_pi, 1e-12);
  EXPECT_NEAR(expected_maximum(10), 1.53875, 1e-5);
  EXPECT_NEAR(expected_maximum(100), 2.50759, 1e-5);
  EXPECT_NEAR(expected_maximum(400), 2.96818, 1e-5);
  EXPECT_GT(expected_maximum(16384), 3.9);
  EXPECT_LT(expected_maximum(16384), std::sqrt(2 * std::log(16384))) << "the bound for any n";
}

TEST(WaitingTime, IsATermOfTheStepOfSeveralRanks) {
  const DataSheet sheet = find_data_sheet("h100");
  const CompiledSession two = rank_session("2", "none"), many = rank_session("1024", "none");
  Calibration c = *find_calibration("", two.device);
  EXPECT_EQ(c.times.spread(), 0) << "the calibrations that come with Crest have no spread yet";
  const PlannedTime t = *step_time(two, &c, &sheet).time, rank = planned_time(two, c, &sheet);
  auto expected = [](const PlannedTime& time, int ranks) {
    double computing = 0;
    for (auto& row : time.profile.instrs) computing += communicates(row) ? 0 : row.ms;
    return time.spread.share * computing * expected_maximum(ranks);
  };
  EXPECT_GT(t.waiting_ms, 0);
  EXPECT_NEAR(t.waiting_ms / expected(t, 2), 1, 1e-9);
  EXPECT_NEAR(t.ms - t.waiting_ms, rank.ms, 1e-9);
  EXPECT_EQ(to_json(t, c)["waiting_ms"], t.waiting_ms);
  EXPECT_NE(text_of(t, c).find("waiting for the slowest rank"), std::string::npos) << text_of(t, c);
  const PlannedTime wide = *step_time(many, &c, &sheet).time;
  EXPECT_NEAR(wide.waiting_ms / expected(wide, 1024), 1, 1e-9);
  EXPECT_EQ(step_time(rank_session("1", "none"), &c, &sheet).time->waiting_ms, 0);
  // A calibrated spread: the middle half of 1 to 9 is 4 wide around 5, and outliers do not matter.
  Profile p = step_rows(two);
  p.step_ms = {1, 2, 3, 4, 5, 6, 7, 8, 900};
  for (auto& row : p.instrs) row.ms = 0.01;
  Calibration own;
  own.sources.push_back({});
  own.add(p);
  EXPECT_NEAR(own.times.spread(), 4 / 1.349 / 5, 1e-12);
  EXPECT_EQ(TimeModel::from_json(own.times.to_json(), "x").spread(), own.times.spread());
  EXPECT_EQ(planned_time(two, own, &sheet).spread.source, "calibration");
}

// Buckets are reduced during the backward pass. One sum of all has nothing to hide behind.
TEST(ExposedTimes, HideWhatTheProgramLetsRunBesideComputation) {
  const DataSheet sheet = find_data_sheet("h100");
  auto session = [&](const char* reduce) {
    Device d = described_device(sheet);
    Recipe r;
    settings_of(r).apply({{"model", {"gpt2-124M"}},
                          {"batch", {"16"}},
                          {"precision", {"bf16"}},
                          {"reduce", {reduce}},
                          {"shard", {"none"}},
                          {"ranks", {"8"}}});
    return compile_phase(resolve(r, d), d, BenchPhase::step, {.verify = false});
  };
  CompiledSession flat = session("flat"), bucket = session("bucket");
  const FloorTime f = floor_time(flat, sheet), b = floor_time(bucket, sheet);
  EXPECT_LT(f.hidden_collectives_ms, 0.01 * f.collectives_ms);
  EXPECT_GT(b.hidden_collectives_ms, 0.3 * b.collectives_ms);
  EXPECT_LT(b.ms, f.ms);
  double rows = 0;
  for (auto& row : b.profile.instrs) rows += row.ms;
  EXPECT_NEAR(rows / b.ms, 1, 1e-9) << "the rows add up to the step";
  // Times alone, by the same clock: slower collectives are exposed more.
  Profile p = step_rows(bucket);
  for (auto& row : p.instrs) row.ms = communicates(row) ? 0.5 : 0.1;
  const double once = exposed_collectives(bucket, p).ms, twice = exposed_collectives(bucket, p, 2).ms;
  EXPECT_LT(once, twice);
  double all = 0;
  for (auto& row : p.instrs) all += communicates(row) ? row.ms : 0;
  EXPECT_LT(once, all);
  bucket.device.kind = "cpu";
  EXPECT_NEAR(exposed_collectives(bucket, p).ms, all, 1e-9)
      << "a CPU's ranks compute and communicate with the same threads";
}

}  // namespace crest::test
