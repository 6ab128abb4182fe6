// Coordinates of ranks, their groups, and the texts of meshes and axes.
#include "program/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "contains.h"
#include "core/error.h"
#include "program/program.h"

namespace crest::test {

TEST(Mesh, TensorIsInnermost) {
  const Mesh mesh = {{Axis::pipeline, 2}, {Axis::data, 3}, {Axis::context, 2}, {Axis::tensor, 2}};
  EXPECT_EQ(mesh.ranks(), 24);
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    auto [t, c, d, p] = mesh.coordinates(rank);
    EXPECT_EQ(rank, ((p * 3 + d) * 2 + c) * 2 + t);
    EXPECT_EQ(mesh.rank({t, c, d, p}), rank);
    EXPECT_EQ(mesh.coordinate(rank, Axis::data), d);
  }
  EXPECT_THROW(mesh.coordinates(24), Error);
  EXPECT_THROW(mesh.rank({0, 0, 3, 0}), Error);
  EXPECT_EQ(mesh.size(Axis::data | Axis::tensor), 6);
  EXPECT_EQ(mesh.size(Axes()), 1);
}

TEST(Mesh, GroupsAreInOrderOfRanks) {
  const Mesh mesh = {{Axis::data, 2}, {Axis::tensor, 2}};
  EXPECT_EQ(mesh.group(2, Axis::tensor), (std::vector<int>{2, 3}));
  EXPECT_EQ(mesh.group(2, Axis::data), (std::vector<int>{0, 2}));
  EXPECT_EQ(mesh.group(3, Axis::data | Axis::tensor), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(mesh.group(3, Axis::context), (std::vector<int>{3}));
}

// For every set of axes: the groups are equally large, disjoint, and hold each rank at its index.
TEST(Mesh, GroupsDivideTheRanks) {
  const Mesh mesh = {{Axis::pipeline, 2}, {Axis::data, 3}, {Axis::context, 2}, {Axis::tensor, 4}};
  for (unsigned bits = 0; bits < 16; ++bits) {
    Axes axes;
    for (Axis axis : axes_outermost_first)
      if (bits >> unsigned(axis) & 1U) axes = axes | axis;
    SCOPED_TRACE(axes.text());
    std::vector<int> members(size_t(mesh.ranks()), 0);
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      std::vector<int> group = mesh.group(rank, axes);
      ASSERT_EQ(int(group.size()), mesh.size(axes));
      EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
      EXPECT_EQ(group[size_t(mesh.index(rank, axes))], rank);
      for (int member : group) {
        EXPECT_EQ(mesh.group(member, axes), group);
        if (group[0] == rank) ++members[size_t(member)];
      }
    }
    EXPECT_EQ(members, std::vector<int>(size_t(mesh.ranks()), 1));
  }
}

TEST(Mesh, TextsParseBack) {
  EXPECT_EQ(parse_mesh("tensor=2,data=4"), (Mesh{{Axis::data, 4}, {Axis::tensor, 2}}));
  EXPECT_EQ(parse_mesh("tensor=2,data=4,context=1,expert=1").text(), "data=4,tensor=2");
  EXPECT_EQ(parse_mesh(""), Mesh());
  EXPECT_EQ(Mesh().text(), "data=1");
  for (const char* text : {"data=1", "pipeline=2,data=2,context=3,tensor=4", "context=8"})
    EXPECT_EQ(parse_mesh(text).text(), text);
  for (const char* text : {"data", "data+context", "pipeline+data+context+tensor"})
    EXPECT_EQ(parse_axes(text).text(), text);
  EXPECT_EQ(parse_axes("tensor+data"), Axis::data | Axis::tensor);
  EXPECT_THROW(parse_axes("data+data"), Error);
  EXPECT_THROW(parse_axes("date"), Error);
  EXPECT_THROW(parse_axes(""), Error);
}

TEST(Mesh, WrongTextsAreRefused) {
  const std::vector<std::pair<const char*, const char*>> wrong = {{"tenor=2", "Did you mean 'tensor'?"},
                                                                  {"exprt=2", "Did you mean 'expert'?"},
                                                                  {"data", "'data' is not AXIS=RANKS"},
                                                                  {"data=2,,tensor=2", "'' is not AXIS=RANKS"},
                                                                  {"data=0", "'0' is not a number of ranks"},
                                                                  {"data=-1", "'-1' is not"},
                                                                  {"data=2.0", "'2.0' is not"},
                                                                  {"data=", "'' is not a number"},
                                                                  {"data=4294967298", "'4294967298' is not"},
                                                                  {"data=65536,tensor=65536", "too many ranks"},
                                                                  {"data=2,data=2", "'data' is given twice"},
                                                                  {"expert=2", "expert is not there yet"}};
  for (auto& [text, said] : wrong) try {
      parse_mesh(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::usage);
      EXPECT_EQ(e.where(), "--mesh");
      EXPECT_TRUE(contains(e.what(), said)) << text << ": " << e.what();
    }
}

TEST(Mesh, AnInstructionHasItsAxes) {
  Instr instr;
  EXPECT_EQ(axes_of(instr), Axis::data) << "without an attribute";
  instr.attrs.set("axes", "data+context");
  EXPECT_EQ(axes_of(instr), Axis::data | Axis::context);
}

}  // namespace crest::test
