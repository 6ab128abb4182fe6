// A matrix product by the matmul primitive of the oneDNN whose headers this is compiled with;
// libraries.cpp opens one such file for each version.
//   g++ -std=c++20 -O2 -shared -fPIC -I INCLUDE studies/cpu_gemm/library_products.cpp -L LIB -ldnnl -Wl,-rpath,LIB -o NAME.so
#include <exception>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

dnnl::engine& engine() {
  static dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}
dnnl::stream& stream() {
  static dnnl::stream s(engine());
  return s;
}

dnnl::matmul::primitive_desc describe(const Desc& a, const Desc& b, const Desc& c) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), a, b, c};
#else
  return {dnnl::matmul::desc(a, b, c), engine()};
#endif
}

struct Product {
  Desc a, b, c, packed;
  dnnl::matmul multiply;
  dnnl::reorder move;
  dnnl::memory room;
  bool pack;
};

dnnl::memory wrap(const Desc& d, const void* p) { return {d, engine(), const_cast<void*>(p)}; }

}  // namespace

// c[m,n] = a b; a transposed: stored [k,m], b: [n,k]. pack: b is first moved to the layout that the
// library prefers, in each run. Null where the library refuses.
extern "C" void* product_make(bool bf16, bool a_transposed, bool b_transposed, bool f32_result, bool pack, long m,
                              long n, long k) try {
  auto t = bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  auto p = new Product;
  p->a = {Dims{m, k}, t, a_transposed ? Dims{1, m} : Dims{k, 1}};
  p->b = {Dims{k, n}, t, b_transposed ? Dims{1, k} : Dims{n, 1}};
  p->c = {Dims{m, n}, f32_result ? dnnl::memory::data_type::f32 : t, Dims{n, 1}};
  p->pack = pack;
  auto pd = describe(p->a, pack ? Desc(Dims{k, n}, t, dnnl::memory::format_tag::any) : p->b, p->c);
  p->multiply = dnnl::matmul(pd);
  p->packed = pd.weights_desc();
  if (pack) {
    p->move = dnnl::reorder({engine(), p->b, engine(), p->packed});
    p->room = dnnl::memory(p->packed, engine());
  }
  return p;
} catch (const std::exception&) {
  return nullptr;
}

extern "C" void product_run(void* product, const void* a, const void* b, void* c) {
  auto& p = *static_cast<Product*>(product);
  dnnl::memory weights = wrap(p.b, b);
  if (p.pack) {
    p.move.execute(stream(), {{DNNL_ARG_FROM, weights}, {DNNL_ARG_TO, p.room}});
    weights = p.room;
  }
  p.multiply.execute(stream(),
                     {{DNNL_ARG_SRC, wrap(p.a, a)}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, wrap(p.c, c)}});
  stream().wait();
}
