// Attributes, origins, the builder.
#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "program/builder.h"

using namespace crest;

namespace {
std::string value_problem(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
}  // namespace

TEST(Attrs, StaySortedAndReplace) {
  Attrs a;
  a.set("scale", 2.0).set("heads", 4).set("kind", "rms").set("beta", true).set("heads", 8);
  std::vector<std::string> keys;
  for (auto& e : a.entries()) keys.emplace_back(e.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"beta", "heads", "kind", "scale"}));
  EXPECT_EQ(a.integer("heads"), 8);
  EXPECT_EQ(a.integer("beta"), 1);
  EXPECT_EQ(a.number("scale"), 2.0);
  EXPECT_EQ(a.number("heads"), 8.0) << "a whole number is a number";
  EXPECT_EQ(a.text("kind"), "rms");
  EXPECT_EQ(a.integer("absent", 3), 3);
  EXPECT_EQ(a.number("absent", 0.5), 0.5);
  a.erase("heads");
  EXPECT_FALSE(a.has("heads"));
  EXPECT_EQ(a.entries().size(), 3u);
}

TEST(Attrs, EqualityDoesNotDependOnTheOrder) {
  EXPECT_EQ(Attrs().set("a", 1).set("b", 2), Attrs().set("b", 2).set("a", 1));
  EXPECT_FALSE(Attrs().set("a", 1) == Attrs().set("a", 1.0)) << "the type counts";
  EXPECT_FALSE(Attrs().set("a", 1) == Attrs().set("b", 1));
}

TEST(Attrs, KeysOutliveTheirSource) {
  Attrs a;
  {
    std::string key = "temporary-key-that-is-too-long-for-small-strings";
    a.set(key, 1);
    key.assign(key.size(), '#');
  }
  EXPECT_EQ(a.entries()[0].key, "temporary-key-that-is-too-long-for-small-strings");
}

TEST(Attrs, MissingOrOfAnotherTypeIsNamed) {
  Attrs a;
  a.set("i", 1).set("d", 1.5).set("w", "x");
  EXPECT_NE(value_problem([&] { a.integer("no"); }).find("'no'"), std::string::npos);
  EXPECT_NE(value_problem([&] { a.integer("d"); }).find("'d'"), std::string::npos);
  EXPECT_NE(value_problem([&] { a.number("w"); }).find("'w'"), std::string::npos);
  EXPECT_NE(value_problem([&] { a.text("i"); }).find("'i'"), std::string::npos);
  EXPECT_NE(value_problem([&] { a.integer("w", 3); }).find("'w'"), std::string::npos);
}

TEST(Origin, IsASetThatKeepsTheOrderOfArrival) {
  Origin a("h.0.fc"), b("h.0.gelu"), c("h.12.fc");
  EXPECT_EQ((a | b).text(), "h.0.fc+h.0.gelu");
  EXPECT_EQ((a | b | a).text(), "h.0.fc+h.0.gelu");
  EXPECT_EQ(a | b, (a | b) | (b | a));
  EXPECT_EQ(((a | b) | c).text(), (a | (b | c)).text());
  EXPECT_EQ(a | Origin(), a);
  EXPECT_EQ(Origin() | a, a);
  EXPECT_TRUE((Origin() | Origin()).empty());
  EXPECT_EQ(Origin("h.0.fc"), a) << "interned";
  EXPECT_EQ((a | b).scopes().size(), 2u);
}

TEST(Origin, ParsesItsText) {
  for (const char* text : {"", "loss", "h.0.fc+h.0.gelu", "h.11.attn+h.3.ln_1+wte"}) {
    EXPECT_EQ(Origin::parse(text).text(), text);
    EXPECT_EQ(Origin::parse(text), Origin::parse(Origin::parse(text).text()));
  }
}

TEST(Origin, KnowsItsLayer) {
  EXPECT_EQ(Origin("h.3.attn.softmax").layer(), 3);
  EXPECT_EQ(Origin("h.47.ln_1").layer(), 47);
  EXPECT_EQ(Origin("lm_head").layer(), -1);
  EXPECT_EQ(Origin("head.3").layer(), -1);
  EXPECT_EQ(Origin().layer(), -1);
  EXPECT_EQ(Origin::parse("drop+h.2.ln_1").layer(), 2);
}

TEST(Builder, NamesAreUniqueAndComeFromOriginAndOperation) {
  Program p;
  Builder b(p);
  ValueId x = b.declare("x", DType::f32, {4}, Role::input, Lifetime::micro_step);
  b.origin = Origin("h.0");
  EXPECT_EQ(p.at(b.emit1("tanh", {x})).name, "h.0.tanh");
  EXPECT_EQ(p.at(b.emit1("tanh", {x})).name, "h.0.tanh.1");
  EXPECT_EQ(p.at(b.emit1("tanh", {x})).name, "h.0.tanh.2");
  b.declare("h.0.scale", DType::f32, {1}, Role::input, Lifetime::micro_step);
  EXPECT_EQ(p.at(b.emit1("scale", {x}, Attrs().set("value", 1.0))).name, "h.0.scale.1");
  Builder later(p);  // knows the existing names
  later.origin = Origin("h.0");
  EXPECT_EQ(p.at(later.emit1("tanh", {x})).name, "h.0.tanh.3");
  EXPECT_NE(value_problem([&] { later.declare("x", DType::f32, {1}, Role::input, Lifetime::micro_step); }), "");
}

TEST(Builder, InPlaceOutputsShareStorageRoleAndLifetime) {
  Program p;
  Builder b(p);
  ValueId g = b.declare("g", DType::f32, {4}, Role::gradient, Lifetime::step);
  b.origin = Origin("a");
  ValueId h = b.emit1("all_reduce", {g}, Attrs().set("mean", 0));
  EXPECT_EQ(p.at(h).layout.storage, g);
  EXPECT_EQ(p.at(h).role, Role::gradient);
  EXPECT_EQ(p.at(h).lifetime, Lifetime::step);
}

TEST(Program, ProducersConsumersAndFind) {
  Program p;
  Builder b(p);
  ValueId x = b.declare("x", DType::f32, {4}, Role::input, Lifetime::micro_step);
  b.origin = Origin("a");
  ValueId y = b.emit1("add", {x, x}), z = b.emit1("mul", {y, x});
  EXPECT_EQ(p.producers(), (std::vector<int>{-1, 0, 1}));
  EXPECT_EQ(p.consumers()[size_t(x)], (std::vector<int>{0, 1}));
  EXPECT_EQ(p.consumers()[size_t(z)], (std::vector<int>{}));
  EXPECT_EQ(p.find("x"), x);
  EXPECT_EQ(p.find("nothing"), no_value);
}
