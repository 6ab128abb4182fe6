// Type rules and costs, and the measures of the other tests.
#include "ops/harness.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/text.h"
#include "ops/index.h"
#include "program/builder.h"
#include "program/op.h"

namespace crest::test {

TEST(Harness, RelativeErrorSeesNaNAndMisplacedInfinities) {
  EXPECT_EQ(relative_error({3, 4}, {3, 4}), 0);
  EXPECT_DOUBLE_EQ(relative_error({3, 5}, {3, 4}), 0.2);
  EXPECT_EQ(relative_error({0, -INFINITY}, {0, -INFINITY}), 0);
  EXPECT_TRUE(std::isinf(relative_error({0, -INFINITY}, {0, INFINITY})));
  EXPECT_TRUE(std::isinf(relative_error({1, NAN}, {1, 2})));
  EXPECT_TRUE(std::isinf(relative_error({1}, {0})));
  EXPECT_DOUBLE_EQ(worst_element({1, 1, 1, 3}, {1, 1, 1, 1}), 2);
}

// AddressSanitizer would stop at it.
__attribute__((no_sanitize("address"))) static void overrun(bfloat16* end) { *end = {0}; }

TEST(Harness, MemoryIsPoisonedAndGuarded) {
  for (const Case& c : all_cases()) {
    if (c.op != "linear" || c.name != "odd_bias_bf16") continue;
    Single s(c);
    Memory memory(s.program);
    for (double x : memory.read(s.instr().out[0])) EXPECT_TRUE(std::isnan(x));
    EXPECT_TRUE(memory.guards_intact());
    auto* y = static_cast<bfloat16*>(memory.at(s.instr().out[0]));
    overrun(y + s.program.at(s.instr().out[0]).numel());
    EXPECT_FALSE(memory.guards_intact());
    return;
  }
  FAIL() << "the case is gone";
}

// in::OP::NAME and the help of an operation say the same.
TEST(Operands, AreNamedAsInTheHelp) {
  EXPECT_EQ(size_t(in::attention_grad::lse), 3u);
  EXPECT_EQ(size_t(out::norm_grad::dbeta), 2u);
  EXPECT_EQ(operand_name(op("norm_grad").inputs, 4), "mean");
  EXPECT_EQ(operand_name(op("grad_norm").inputs, 3), "gradients 3");
  int compared = 0;
  for (const OpDef* o : all_ops()) {
    std::string help = o->help, inputs = help.substr(0, help.find("->"));
    if (inputs.find("..,") != std::string::npos || inputs.find(", ..") != std::string::npos) continue;  // any number
    if (inputs.find(" of ") != std::string::npos) continue;  // "inputs of the body"
    // Without shapes ("[B,T]" after a name), dtypes and the brackets of optional parts.
    std::vector<std::string> names;
    int depth = 0;
    std::string word;
    bool optional = false;
    for (char c : inputs + ",") {
      if (c == '[' && word.empty() && !optional) {
        optional = true;
      } else if (c == '[') {
        ++depth;
      } else if (c == ']' && depth > 0) {
        --depth;
      } else if (c == ',' && depth == 0) {
        names.push_back(word.substr(0, word.find(' ')));
        word.clear(), optional = false;
      } else if (depth == 0 && c != ']' && (c != ' ' || !word.empty())) {
        word += c;
      }
    }
    EXPECT_EQ(join(names, ", "), o->inputs) << o->name;
    ++compared;
  }
  EXPECT_GE(compared, 45);
}

// Type rules refuse everything not allowed by docs/reference/ops.md, and name the operation.
TEST(Infer, RefusesWrongShapesDtypesAndAttributes) {
  Program p;
  Builder b(p);
  b.origin = Origin("test");
  int n = 0;
  auto value = [&](DType t, const Shape& s) {
    return b.declare("v" + std::to_string(n++), t, s, Role::input, Lifetime::micro_step);
  };
  auto refused = [&](const char* op, std::vector<ValueId> in, const Attrs& attrs, const std::string& expected) {
    try {
      b.emit(op, in, attrs);
      ADD_FAILURE() << op << " was accepted; expected: " << expected;
    } catch (const std::exception& e) {
      EXPECT_NE(std::string(e.what()).find(expected), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(op), std::string::npos) << e.what();
    }
  };
  DType f = DType::f32;
  ValueId x = value(f, {2, 3, 8}), w = value(f, {4, 8}), half = value(DType::bf16, {4, 8}),
          id = value(DType::i32, {2, 3});
  refused("linear", {x}, {}, "needs 2 to 3 inputs");
  refused("linear", {x, value(f, {4, 7})}, {}, "last dimension");
  refused("linear", {x, half}, {}, "one dtype");
  refused("linear", {x, w, value(f, {5})}, {}, "must have shape [4]");
  ValueId w8 = value(DType::i8, {4, 8}), scales = value(f, {4});
  refused("linear_int8", {x, w, scales}, {}, "must be i8");
  refused("linear_int8", {x, w8, value(f, {8})}, {}, "must have shape [4]");
  refused("linear_int8", {x, w8, value(DType::bf16, {4})}, {}, "must be f32");
  refused("linear_int8", {x, value(DType::i8, {4, 7}), scales}, {}, "last dimension");
  refused("linear_gelu_int8", {x, w8, scales, value(f, {5})}, {}, "must have shape [4]");
  refused("dequantize", {w8, scales}, {}, "'dtype' is missing");
  refused("dequantize", {w8, scales}, Attrs().set("dtype", "i32"), "floating-point");
  refused("embedding_int8", {value(DType::i32, {2, 3}), w8, value(f, {8})}, Attrs().set("dtype", "f32"),
          "must have shape [4]");
  refused("linear_dw", {x, x, value(f, {8, 7})}, {}, "must have shape [8,8]");
  refused("linear_dw", {x, x, value(f, {8, 8})}, Attrs().set("dtype", "bf16"), "must be bf16");
  refused("matmul", {value(f, {1, 3, 4, 4}), value(f, {1, 2, 4, 4})}, {}, "must divide the heads");
  refused("add", {x, w}, {}, "one shape");
  refused("tanh", {id}, {}, "floating-point");
  refused("scale", {x}, {}, "'value' is missing");
  refused("cast", {x}, Attrs().set("dtype", "i32"), "floating-point");
  refused("dropout", {x, id}, Attrs().set("p", 0.1).set("rng_id", 1), "scalars");
  ValueId step = value(DType::u8, {64});
  refused("embedding", {value(DType::i32, {2, 3}), w, step}, {}, "'p' is missing");
  refused("add_position", {value(f, {2, 3, 8}), w, value(DType::i32, {2, 4})}, {}, "must have shape [2,3]");
  refused("add_position", {value(f, {2, 3, 8}), w, no_value, step}, Attrs().set("p", 0.1), "'rng_id' is missing");
  refused("add_norm", {x, x, value(f, {8})}, Attrs().set("kind", "rms").set("eps", 1e-5).set("p", 0.1),
          "'p' needs the step's scalars");
  refused("norm_grad", {x, x, value(f, {8}), value(f, {6})}, Attrs().set("kind", "rms").set("apart", 1),
          "'apart' needs attribute 'p'");
  refused("norm", {x, value(f, {8}), value(f, {8})}, Attrs().set("kind", "rms").set("eps", 1e-5), "no beta");
  refused("norm", {x, value(f, {8})}, Attrs().set("kind", "batch").set("eps", 1e-5), "layer or rms");
  ValueId c8 = value(f, {8}), rows6 = value(f, {6});
  Attrs layer = Attrs().set("kind", "layer").set("beta", 1);
  refused("norm_grad", {x, x, c8, rows6, rows6}, Attrs().set("kind", "layer").set("bias", 1), "needs attribute 'beta'");
  refused("norm_grad", {x, x, c8, rows6, rows6, no_value, no_value, no_value, c8}, layer, "attribute 'bias' is 0");
  refused("norm_grad", {x, x, c8, rows6, rows6, no_value, no_value, no_value, w}, layer.set("bias", 1),
          "must have shape [8]");
  std::vector<ValueId> with_beta = {x, x, c8, rows6, rows6, no_value, no_value, no_value, no_value, c8};
  refused("norm_grad", with_beta, layer, "attribute 'keep' is 0");
  with_beta[4] = no_value;
  refused("norm_grad", with_beta, Attrs().set("kind", "rms").set("keep", 1), "no beta");
  ValueId amax = value(f, {1, 4}), record = value(f, {4, 1}), counts = value(DType::i64, {4, 2}), scale = value(f, {1});
  Attrs quantized = Attrs().set("kind", "rms").set("eps", 1e-5).set("format", "e4m3").set("slot", 4).set("margin", 1);
  refused("norm_quantize", {x, c8, amax, record, counts}, quantized, "'slot' is not below");
  refused("norm_quantize", {x, c8, amax, record, counts, no_value, c8}, quantized, "no beta");
  refused("norm_quantize", {x, c8, value(f, {4}), record, counts}, quantized, "dimensions");
  Attrs columns = Attrs().set("kind", "layer").set("format", "e4m3");
  refused("norm_quantize_columns", {x, c8, rows6, scale}, columns, "needs the saved mean");
  refused("norm_quantize_columns", {x, c8, rows6, scale}, Attrs().set("kind", "rms"), "'format' is missing");
  Attrs blocks = Attrs().set("format", "e4m3").set("slot", 4);
  refused("quantize_blocks", {x, counts}, Attrs(blocks).set("blocks", "1x128"), "'slot' is not below");
  blocks.set("slot", 0);
  refused("quantize_blocks", {x, counts}, blocks, "'blocks' is missing");
  refused("quantize_blocks", {x, counts}, blocks.set("blocks", "1x64"), "must be 1x128 or 128x128");
  refused("quantize_blocks_columns", {x}, Attrs().set("format", "e4m3"), "'blocks' is missing");
  refused("quantize_blocks_columns", {x}, Attrs().set("format", "bf16").set("blocks", "1x128"), "must be e4m3 or e5m2");
  refused("take_counts", {counts, value(DType::i64, {3, 2})}, {}, "shape");
  Attrs in_blocks = Attrs(quantized).set("slot", 0).set("blocks", "1x128");
  refused("norm_quantize", {x, c8, amax, record, counts}, in_blocks, "neither amax nor record");
  refused("norm_quantize", {x, c8, no_value, no_value, counts}, Attrs(quantized).set("slot", 0), "amax and record are");
  refused("norm_quantize", {x, c8, no_value, no_value, scale}, in_blocks, "dimensions");
  in_blocks.set("blocks", "128x128");
  refused("norm_quantize", {x, c8, no_value, no_value, counts}, in_blocks, "must be 1x128");
  Attrs turned = Attrs().set("kind", "rms").set("format", "e4m3");
  refused("norm_quantize_columns", {x, c8, rows6}, turned, "needs the scale");
  refused("norm_quantize_columns", {x, c8, rows6, scale}, turned.set("blocks", "1x128"), "reads none");
  ValueId q8 = value(DType::e4m3, {2, 3, 144}), qw = value(DType::e4m3, {130, 144});
  ValueId of_rows = value(f, {2, 6}), of_squares = value(f, {2, 4});
  refused("linear_fp8", {q8, qw, of_rows, of_squares}, Attrs().set("dtype", "f32"), "must have shape [1]");
  refused("linear_fp8", {q8, qw, scale, of_squares}, Attrs().set("blocks", "128x128"), "must have shape [2,6]");
  refused("linear_fp8", {q8, qw, of_rows, of_squares}, Attrs().set("blocks", "1x128"), "must have shape [2,130]");
  refused("linear_fp8", {q8, qw, of_rows, of_rows}, Attrs().set("blocks", "128x128"), "must have shape [2,4]");
  refused("linear_fp8", {q8, qw, of_rows, of_squares}, Attrs().set("blocks", "128x128").set("fast_accumulation", 1),
          "scales of blocks or fast accumulation");
  refused("attention", {x}, Attrs().set("heads", 3).set("kv_heads", 2).set("scale", 1.0), "cannot be shared");
  refused("attention", {x}, Attrs().set("heads", 1).set("kv_heads", 1).set("scale", 1.0), "not a multiple");
  Attrs window = Attrs().set("heads", 1).set("kv_heads", 1).set("scale", 1.0).set("window", 2);
  refused("attention", {value(f, {2, 3, 12})}, window, "a window needs attribute 'causal'");
  refused("attention", {value(f, {2, 3, 12})}, window.set("causal", 1).set("window", 0), "at least 1");
  refused("causal_mask", {value(f, {1, 1, 2, 2})}, Attrs().set("window", -1), "at least 1");
  refused("causal_mask", {value(f, {1, 1, 2, 3})}, {}, "square");
  refused("softmax", {value(f, {1, 1, 2, 3})}, Attrs().set("causal", 1), "square");
  refused("softmax_grad", {x, x}, Attrs().set("causal", 1), "dimensions");
  refused("softmax", {x}, Attrs().set("causal", 2), "must be 0 or 1");
  refused("embedding", {x, w}, {}, "must be i32");
  refused("add_position", {x, value(f, {2, 8})}, {}, "longer than the position table");
  refused("cross_entropy", {x, value(DType::i32, {5})}, Attrs().set("vocab", 8), "one entry per row");
  refused("cross_entropy", {x, value(DType::i32, {6})}, Attrs().set("vocab", 9), "exceeds the width");
  refused("cross_entropy", {x, value(DType::i32, {6})}, Attrs().set("vocab", 8).set("cap", 0.0), "must be positive");
  ValueId q = b.emit("split_heads", {value(f, {2, 3, 12})}, Attrs().set("heads", 1).set("kv_heads", 1))[0];
  refused("tanh", {q}, {}, "must be contiguous");
}

// Executed arithmetic: 2 MNK, half the square for causal attention, 2.5 times as much backward.
TEST(Cost, CountsExecutedArithmetic) {
  Program p;
  Builder b(p);
  b.origin = Origin("test");
  auto value = [&](const char* name, const Shape& s) {
    return b.declare(name, DType::f32, s, Role::input, Lifetime::micro_step);
  };
  auto flops = [&] { return p.code.back().op->cost(p, p.code.back()).flops; };
  ValueId x = value("x", {2, 8, 12});
  b.emit("linear", {x, value("w", {5, 12})});
  EXPECT_EQ(flops(), 2.0 * 16 * 12 * 5);
  Attrs heads = Attrs().set("heads", 2).set("kv_heads", 1).set("scale", 1.0).set("causal", 1);
  auto o = b.emit("attention", {x}, heads);
  EXPECT_EQ(flops(), 4.0 * 2 * (8 * 9 / 2) * 6);
  b.emit("attention_grad", {o[0], x, o[0], o[1]}, heads);
  EXPECT_EQ(flops(), 2.5 * 4 * 2 * (8 * 9 / 2) * 6);
  // A window of 3: rows of 1, 2 and six times 3 keys; one over all tokens changes nothing.
  Attrs window = Attrs(heads).set("window", 3);
  b.emit("attention", {x}, window);
  EXPECT_EQ(flops(), 4.0 * 2 * (1 + 2 + 6 * 3) * 6);
  b.emit("attention_grad", {o[0], x, o[0], o[1]}, window);
  EXPECT_EQ(flops(), 2.5 * 4 * 2 * (1 + 2 + 6 * 3) * 6);
  b.emit("attention", {x}, Attrs(heads).set("window", 8));
  EXPECT_EQ(flops(), 4.0 * 2 * (8 * 9 / 2) * 6);
  // Two tokens at the end of a cache of 20 positions: each sees 3, both together 4.
  ValueId two = value("two", {2, 2, 12}), cache = value("cache", {2, 2, 1, 20, 3});
  ValueId scalars = b.declare("scalars", DType::u8, {64}, Role::input, Lifetime::micro_step);
  Attrs decode = Attrs().set("heads", 2).set("kv_heads", 1).set("scale", 1.0);
  b.emit("cached_attention", {two, cache, scalars}, decode);
  Cost full = op("cached_attention").cost(p, p.code.back());
  b.emit("cached_attention", {two, cache, scalars}, decode.set("window", 3));
  Cost part = op("cached_attention").cost(p, p.code.back());
  EXPECT_EQ(full.flops, 4.0 * 2 * 2 * 6 * 20);
  EXPECT_EQ(part.flops, 4.0 * 2 * 2 * 6 * 3);
  EXPECT_EQ(full.bytes_read - part.bytes_read, 4.0 * 2 * 2 * 16 * 3);
  ValueId s = value("s", {2, 2, 8, 8});
  b.emit("softmax", {s}, Attrs().set("causal", 1));
  Cost causal = op("softmax").cost(p, p.code.back());
  EXPECT_EQ(causal.flops, 5.0 * 4 * (8 * 9 / 2));
  EXPECT_EQ(causal.bytes_read, 4.0 * 4 * (8 * 9 / 2));
  EXPECT_EQ(causal.bytes_written, 4.0 * 4 * 64);
  b.emit("split_heads", {x}, Attrs().set("heads", 1).set("kv_heads", 1));
  Cost views = op("split_heads").cost(p, p.code.back());
  EXPECT_EQ(views.bytes(), 0);
}

}  // namespace crest::test
