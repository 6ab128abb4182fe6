// The safetensors reader and writer: written files are read, and every malformed file is refused
// for its own reason.
#include "checkpoint/safetensors.h"

#include "checkpoint/safetensors_folder.h"
#include "core/random.h"
#include "core/text.h"
#include "tiny.h"

using namespace crest;
using namespace crest::test;

namespace {

std::string with_length(const std::string& header, const std::string& data, int64_t length = -1) {
  uint64_t n = length < 0 ? header.size() : uint64_t(length);
  std::string out;
  for (int i = 0; i < 8; ++i) out += char(n >> (8 * i));
  return out + header + data;
}

std::string open_error(const MemoryFolder& folder, const std::string& bytes, const char* name = "x.safetensors") {
  write_file_synced(folder / name, bytes);
  return error_of([&] { SafetensorsFile::open(folder / name); });
}

}  // namespace

TEST(Safetensors, EveryDtypeRoundTrips) {
  MemoryFolder folder;
  std::vector<std::vector<char>> data;
  std::vector<TensorSource> sources;
  data.reserve(16);
  for (DType dtype : {DType::u8, DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u16})
    for (std::vector<int64_t> shape : {std::vector<int64_t>{3, 5}, std::vector<int64_t>{}}) {
      TensorSpec spec{std::string(name(dtype)) + "/\"\xc3\xa9\n" + std::to_string(shape.size()), dtype, shape};
      auto& bytes = data.emplace_back(byte_count(spec));
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(random_bits(1, data.size(), i));
      sources.push_back({spec, bytes.data()});
    }
  for (TensorOrder order : {TensorOrder::given, TensorOrder::canonical}) {
    write_safetensors(folder / "x.safetensors", sources, order, {{"note", "a \"b\""}});
    auto file = SafetensorsFile::open(folder / "x.safetensors");
    ASSERT_EQ(file.tensors().size(), sources.size());
    EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"note", "a \"b\""}}));
    for (size_t i = 0; i < sources.size(); ++i) {
      int64_t at = file.find(sources[i].spec.name);
      ASSERT_GE(at, 0);
      if (order == TensorOrder::given) {
        EXPECT_EQ(at, int64_t(i));
      }
      auto& entry = file.tensors()[size_t(at)];
      EXPECT_EQ(entry.spec, sources[i].spec);
      if (order == TensorOrder::canonical) {
        EXPECT_EQ(entry.offset % size_of(entry.spec.dtype), 0u);
      }
      std::vector<char> back(entry.bytes);
      Digest read = file.read_hashed(size_t(at), back.data(), back.size());
      EXPECT_EQ(back, data[i]);
      EXPECT_EQ(read, sha256(data[i].data(), data[i].size()));
      EXPECT_EQ(read, file.hash(size_t(at)));
    }
    EXPECT_EQ(file.find("no such tensor"), -1);
    EXPECT_THROW(file.read(0, nullptr, file.tensors()[0].bytes + 1), Error);
    // Hugging Face's readers map the file: the data begin at a multiple of 8.
    EXPECT_EQ(file.tensors()[0].offset % 8, 0u);
  }
}

TEST(Safetensors, LargeTensorsHashInPiecesAndInParallel) {
  MemoryFolder folder;
  std::vector<char> big(3'000'001), small(100);
  for (size_t i = 0; i < big.size(); ++i) big[i] = char(mix(i));
  std::vector<TensorSource> sources = {{{"big", DType::u8, {3'000'001}}, big.data()},
                                       {{"small", DType::f32, {25}}, small.data()},
                                       {{"again", DType::u8, {3'000'001}}, big.data()}};
  write_safetensors(folder / "x.safetensors", sources);
  auto file = SafetensorsFile::open(folder / "x.safetensors");
  auto digests = hash_tensors(sources);
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(digests[i], sha256(sources[i].data, size_t(byte_count(sources[i].spec))));
    EXPECT_EQ(file.hash(size_t(file.find(sources[i].spec.name))), digests[i]);
  }
}

TEST(Safetensors, MalformedFilesAreRefusedForTheirReason) {
  MemoryFolder folder;
  const std::string a = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight(8, 'x');
  ASSERT_EQ(open_error(folder, with_length(a, eight)), "");
  ASSERT_EQ(open_error(folder, with_length(a + "   ", eight)), "") << "padding";
  ASSERT_EQ(open_error(folder, with_length("{}", "")), "") << "no tensors";
  auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  auto two = [](const std::string& offsets_a, const std::string& offsets_b) {
    return R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + offsets_a +
           R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + offsets_b + "}}";
  };
  ASSERT_EQ(open_error(folder, with_length(two("[4,8]", "[0,4]"), eight)), "") << "any order in the header";
  std::string deep, many = "{";
  for (int i = 0; i < 100'000; ++i) deep += "[";
  for (int i = 0; i < 100'001; ++i)
    many +=
        std::string(i ? "," : "") + "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  many += "}";
  std::string many_metadata = R"({"__metadata__":{"":"")";
  for (int i = 0; i < 10'001; ++i) many_metadata += ",\"" + std::to_string(i) + "\":\"\"";
  many_metadata += "}}";
  struct Case {
    std::string bytes, reason;
  };
  std::vector<Case> cases = {
      {"", "0 bytes"},
      {"1234567", "7 bytes"},
      {with_length("", ""), "8 bytes"},
      {with_length("[]", ""), "does not start with '{'"},
      {with_length(" {}", ""), "does not start with '{'"},
      {with_length(a, eight, 1 << 20), "a header of"},
      {with_length(a, eight, int64_t(1) << 62), "a header of"},
      {with_length(a, "1234567"), "cut short"},
      {with_length(a, eight + "9"), "describes 8 bytes"},
      {with_length(a.substr(0, 30), eight), "not valid JSON"},
      {with_length(a + "x", eight), "not valid JSON"},
      {with_length("{\"\xff\":1}", ""), "not valid JSON"},
      {with_length(R"({"a":1})", ""), "an unexpected number"},
      {with_length(R"({"a":[]})", ""), "an unexpected list"},
      {with_length(R"({"a":"b"})", ""), "an unexpected string"},
      {with_length(R"({"a":null})", ""), "null"},
      {with_length(R"({"a":true})", ""), "true or false"},
      {with_length(R"({"a":{}})", ""), "is missing"},
      {with_length(R"({"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight), "no name"},
      {with_length(R"({"a":{"dtype":"F32","shape":[2]}})", eight), "is missing"},
      {with_length(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", eight), "unknown key 'more'"},
      {with_length(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight), "twice"},
      {with_length(a.substr(0, a.size() - 1) + "," + a.substr(1), eight), "'a' appears twice"},
      {with_length(one("F31", "[2]", "[0,8]"), eight), "unknown dtype 'F31'"},
      {with_length(one("F32", "2", "[0,8]"), eight), "an unexpected number"},
      {with_length(one("F32", "[[2]]", "[0,8]"), eight), "an unexpected list"},
      {with_length(one("F32", "[{}]", "[0,8]"), eight), "an unexpected object"},
      {with_length(one("F32", "[-2]", "[0,8]"), eight), "negative"},
      {with_length(one("F32", "[2.0]", "[0,8]"), eight), "fraction"},
      {with_length(one("F32", "[1e0]", "[0,8]"), eight), "fraction"},
      {with_length(one("F32", "[\"2\"]", "[0,8]"), eight), "an unexpected string"},
      {with_length(one("F32", "[18446744073709551615]", "[0,8]"), eight), "too large"},
      {with_length(one("F32", "[4294967296,4294967296]", "[0,0]"), ""), "overflows"},
      {with_length(one("F32", "[4611686018427387904]", "[0,0]"), ""), "overflows"},
      {with_length(one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), eight), "more than 8 dimensions"},
      {with_length(one("F32", "[3]", "[0,8]"), eight), "need 12 bytes"},
      {with_length(one("F32", "[2]", "[8,0]"), eight), "need 8 bytes"},
      {with_length(one("F32", "[2]", "[0]"), eight), "two numbers"},
      {with_length(one("F32", "[2]", "[0,8,8]"), eight), "two numbers"},
      {with_length(one("F32", "[2]", "[1,9]"), eight + "9"), "gap or overlap"},
      {with_length(two("[0,4]", "[0,4]"), "1234"), "gap or overlap"},
      {with_length(two("[0,4]", "[8,12]"), std::string(12, 'x')), "gap or overlap"},
      {with_length("{" + deep, ""), "nested deeper than 4"},
      {with_length(many, ""), "more than 100000 tensors"},
      {with_length(many_metadata, ""), "more than 10000 metadata entries"},
      {with_length(R"({")" + std::string(513, 'n') + R"(":1})", ""), "longer than 512 bytes"},
      {with_length(R"({"__metadata__":{"a":1}})", ""), "an unexpected number"},
      {with_length(R"({"__metadata__":{"a":"","a":""}})", ""), "twice"},
      {with_length(R"({"__metadata__":"a"})", ""), "an unexpected string"},
      {with_length(R"({"__metadata__":{"a":")" + std::string(9'000'000, 'x') + "\"}}", ""),
       "longer than 8388608 bytes"},
      {std::string("PK\x03\x04", 4) + std::string(100, 0), "pickle"},
      {std::string("\x80\x02}q", 4) + std::string(100, 0), "pickle"},
  };
  for (auto& c : cases) {
    std::string error = open_error(folder, c.bytes);
    EXPECT_TRUE(contains(error, c.reason)) << "expected: " << c.reason << "\n     got: " << error;
    EXPECT_TRUE(contains(error, "x.safetensors")) << error;
  }
  EXPECT_GE(cases.size(), 50u);
}

TEST(Safetensors, NamesFromFilesCannotControlTheTerminal) {
  MemoryFolder folder;
  std::string error = open_error(
      folder, with_length(R"({"\u001b[2Jevil":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678"));
  EXPECT_TRUE(contains(error, "evil")) << error;
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
}

TEST(Safetensors, OtherDtypesAreListedButNotRead) {
  MemoryFolder folder;
  std::string header = R"({"mask":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]},)"
                       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  ASSERT_EQ(open_error(folder, with_length(header, "12345678")), "");
  auto file = SafetensorsFile::open(folder / "x.safetensors");
  char data[4];
  file.read(size_t(file.find("w")), data, 4);
  EXPECT_EQ(std::string(data, 4), "5678");
  std::string error = error_of([&] { file.read(size_t(file.find("mask")), data, 4); });
  EXPECT_TRUE(contains(error, "mask") && contains(error, "BOOL")) << error;
}

TEST(Safetensors, PicklesAreRefusedWithAHint) {
  MemoryFolder folder;
  for (const char* name : {"a.pt", "a.pth", "pytorch_model.bin"}) {
    std::string error = open_error(folder, std::string(64, 'x'), name);
    EXPECT_TRUE(contains(error, "pickle") && contains(error, "save_file")) << error;
  }
  MemoryFolder model;
  write_file_synced(model / "pytorch_model.bin", "x");
  EXPECT_TRUE(contains(error_of([&] { WeightsFolder::open(model.path()); }), "save_file"));
  // One shard is no complete model: the command converts all shards and names the folder.
  std::string error = open_error(folder, "x", "pytorch_model-00001-of-00002.bin");
  EXPECT_TRUE(contains(error, "/pytorch_model-*.bin\n") && contains(error, "Then repeat ")) << error;
}

TEST(Safetensors, FoldersPipesAndMissingFilesAreErrors) {
  MemoryFolder folder;
  EXPECT_TRUE(contains(error_of([&] { SafetensorsFile::open(folder.path()); }), "is a folder"));
  EXPECT_TRUE(contains(error_of([&] { SafetensorsFile::open(folder / "none"); }), "No such file"));
  EXPECT_TRUE(contains(error_of([&] { SafetensorsFile::open("/dev/zero"); }), "not a regular file"));
  EXPECT_TRUE(contains(error_of([&] { read_file("/dev/zero", 1 << 20); }), "larger than"));
}

TEST(WeightsFolder, SingleFileFolderAndShardsLookTheSame) {
  MemoryFolder folder;
  float x[4] = {1, 2, 3, 4}, y[2] = {5, 6};
  TensorSource a{{"a", DType::f32, {2, 2}}, x}, b{{"b", DType::f32, {2}}, y};
  write_safetensors(folder / "model-00001-of-00002.safetensors", {b});
  write_safetensors(folder / "model-00002-of-00002.safetensors", {a});
  write_file_synced(folder / "model.safetensors.index.json",
                    R"({"metadata":{"total_size":24},"weight_map":{"b":"model-00001-of-00002.safetensors",)"
                    R"("a":"model-00002-of-00002.safetensors"}})");
  auto check = [&](const std::string& path, size_t files) {
    auto weights = WeightsFolder::open(path);
    ASSERT_EQ(weights.tensors().size(), 2u);
    EXPECT_EQ(weights.files().size(), files);
    for (auto* source : {&a, &b}) {
      int64_t at = weights.find(source->spec.name);
      ASSERT_GE(at, 0);
      EXPECT_EQ(weights.tensors()[size_t(at)].spec, source->spec);
      float back[4] = {};
      weights.read(size_t(at), back, byte_count(source->spec));
      EXPECT_EQ(memcmp(back, source->data, byte_count(source->spec)), 0);
    }
    EXPECT_EQ(weights.find("c"), -1);
  };
  check(folder.path(), 2);
  check(folder / "model.safetensors.index.json", 2);
  write_safetensors(folder / "model.safetensors", {a, b});
  check(folder.path(), 1);
  check(folder / "model.safetensors", 1);
  MemoryFolder empty;
  EXPECT_TRUE(contains(error_of([&] { WeightsFolder::open(empty.path()); }), "no model.safetensors"));
  EXPECT_TRUE(contains(error_of([&] { WeightsFolder::open(empty / "none"); }), "no such file"));
}

TEST(WeightsFolder, OfWhichAPartIsMissingIsNamed) {
  MemoryFolder folder;
  float x[1] = {1};
  write_safetensors(folder / "model-00001-of-00002.safetensors", {{{"a", DType::f32, {1}}, x}});
  auto error = [&] { return error_of([&] { WeightsFolder::open(folder.path()); }); };
  EXPECT_TRUE(contains(error(), "model.safetensors.index.json is missing")) << error();
  write_file_synced(
      folder / "model.safetensors.index.json",
      R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
  EXPECT_TRUE(contains(error(), "'model-00002-of-00002.safetensors' is missing")) << error();
  // Left by git clone without Git LFS.
  write_file_synced(folder / "model-00002-of-00002.safetensors",
                    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n");
  EXPECT_TRUE(contains(error(), "git lfs pull")) << error();
}

TEST(WeightsFolder, AnIndexCannotLeaveItsFolder) {
  MemoryFolder folder;
  float x[1] = {1};
  create_directories(folder / "inner/sub");
  write_safetensors(folder / "outside.safetensors", {{{"a", DType::f32, {1}}, x}});
  write_safetensors(folder / "inner/sub/in.safetensors", {{{"a", DType::f32, {1}}, x}});
  write_safetensors(folder / "inner/other.safetensors", {{{"b", DType::f32, {1}}, x}});
  for (std::string name :
       {"../outside.safetensors", "sub/in.safetensors", "..", ".", "", "/etc/passwd", "a\\\\..\\\\b.safetensors",
        ".hidden.safetensors", "evil\\u0000.safetensors", "model.bin", "c:x.safetensors"}) {
    write_file_synced(folder / "inner/model.safetensors.index.json", R"({"weight_map":{"a":")" + name + "\"}}");
    std::string error = error_of([&] { WeightsFolder::open(folder / "inner"); });
    EXPECT_TRUE(contains(error, "not a .safetensors file")) << name << ": " << error;
  }
  for (std::string index :
       {"[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})", "",
        R"({"weight_map":{"a":"other.safetensors"}})", R"({"weight_map":{"a":"no.safetensors"}})"}) {
    write_file_synced(folder / "inner/model.safetensors.index.json", index);
    EXPECT_NE(error_of([&] { WeightsFolder::open(folder / "inner"); }), "") << index;
  }
}

TEST(TensorSpec, SizesAreChecked) {
  EXPECT_EQ(byte_count({"a", DType::bf16, {3, 5}}), 30u);
  EXPECT_EQ(byte_count({"a", DType::f64, {}}), 8u);
  EXPECT_THROW(byte_count({"a", DType::f32, {-1}}), Error);
  EXPECT_THROW(byte_count({"a", DType::f32, {int64_t(1) << 40, int64_t(1) << 40}}), Error);
  EXPECT_THROW(byte_count({"a", DType::f64, {int64_t(1) << 62}}), Error);
}
