// Special sizes and places of kernels: more rows than one block sums, more tensors than one launch
// takes, addresses unfit for vectors, gradients with squares beyond f32.
#include "ops/case.h"

namespace crest::test {

static void add_cases(std::vector<Case>& list, DType t) {
  auto add = [&](const char* op, const std::string& name, std::vector<Arg> in, Attrs attrs = {}) -> Case& {
    list.push_back({op, name + "_" + std::string(crest::name(t)), std::move(in), std::move(attrs), nullptr,
                    some_scalars(), nullptr});
    return list.back();
  };
  DType f = DType::f32;
  auto shifted = [](DType type, int64_t n) { return view(type, {n}, {1}, 3); };  // contiguous, not on a vector

  Attrs to_f32 = Attrs().set("dtype", "f32");
  add("bias_grad", "many_rows", {tensor(t, {2, 1100, 72})});
  add("bias_grad", "many_rows_acc", {tensor(t, {2500, 200}), tensor(f, {200}, 10)}, to_f32);
  add("bias_grad", "many_rows_odd", {tensor(t, {1500, 33}), tensor(f, {33}, 10)}, to_f32);
  add("bias_grad", "shifted", {view(t, {40, 64}, {64, 1}, 3)});

  // Chunks of rows: numbers that divide the rows and that do not, one chunk, several leading
  // dimensions; joined in another place.
  for (int64_t rows : {1, 4, 5, 100})
    add("split_rows", "of_15_by_" + std::to_string(rows), {tensor(t, {3, 5, 33})},
        Attrs().set("of", 15).set("rows", rows));
  add("split_rows", "vectors", {tensor(t, {70})}, Attrs().set("of", 70).set("rows", 64));
  add("join_rows", "three", {tensor(t, {64, 48}), tensor(t, {64, 48}), tensor(t, {7, 48})});
  add("join_rows", "odd", {tensor(t, {3, 33}), tensor(t, {2, 33}), tensor(t, {1, 33})}, Attrs().set("batch", 2));
  add("join_rows", "one", {tensor(t, {130})});
  add("join_rows", "shifted", {view(t, {5, 24}, {24, 1}, 3), tensor(t, {1, 24})});

  // Into the beginning of a buffer with other content, and back; f64 fits, too.
  Arg buffer = {Arg::Fill::ids, DType::u8, {1024}, 1, 256};
  add("copy_in", "vector", {tensor(t, {101}), buffer});
  add("copy_in", "matrix", {tensor(t, {5, 24}), buffer});
  add("copy_out", "matrix", {tensor(t, {5, 24}), tensor(t, {5, 24})});
  add("copy_out", "shifted", {shifted(t, 50), shifted(t, 50)});

  Attrs clip = Attrs().set("clip", 1.0);
  std::vector<Arg> many = {scalars_arg()};
  for (int64_t i = 0; i < 300; ++i) many.push_back(tensor(i % 7 == 3 ? f : t, {1 + i * 13 % 101}));
  add("grad_norm", "300_tensors", many, clip);
  add("grad_norm", "shifted", {scalars_arg(), shifted(t, 9000), tensor(t, {70001})}, clip);
  if (t != DType::f16)
    add("grad_norm", "large", {scalars_arg(), tensor(t, {50})}, clip).complete = [](Values& v) { v[1][7] = 1e25; };

  Attrs adamw = Attrs().set("beta1", 0.0).set("beta2", 0.999).set("eps", 1e-8).set("weight_decay", 0.0);
  int64_t n = 60001;
  add("adamw", "strided_blocks", {scalars_arg(), tensor(f, {n}), tensor(f, {n}), positive(f, {n}), tensor(t, {n}, 8)},
      adamw)
      .scalars.adam_step = 100000;
  add("adamw", "shifted",
      {scalars_arg(), tensor(f, {50}), shifted(f, 50), positive(f, {50}), shifted(t, 50), shifted(DType::bf16, 50)},
      adamw);
}

static const CaseFile file = {add_cases};

}  // namespace crest::test
