// Matrix products by the newest cublasLt that this process has loaded, normally torch's. Nothing is
// linked.
#pragma once
#include <cstdint>
#include <memory>

#include "kernels/recurrence.h"

namespace tsm::cuda {

// Whether the process has loaded cublasLt.
bool has_products();

struct ProductShape {
  int64_t n, m, k;
  int64_t x_step, w_step, out_step;  // elements from one row to the next
  bool x_turned, w_turned;           // x is [k,n], else [n,k]; w is [m,k], else [k,m]
  DType dtype, out;                  // of x and w, and of the result: bfloat16 or float
  bool tf32;                         // may round float x and w to tf32
  bool rows_vary = false;            // x's rows (n, or k if x is turned): in many products
};

// out [n,m] = x [n,k] w + added [n,m], summed in float, for many arrays of one shape on the current
// device. Needs has_products(). All arrays and their rows are 16-byte aligned.
class Product {
 public:
  static constexpr int64_t kWorkspace = int64_t(32) << 20;  // the most bytes that `run` needs

  explicit Product(const ProductShape& shape);
  ~Product();
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  int64_t workspace() const;  // bytes of scratch memory for `run`
  // added: of the type and layout of out, which it may be; null: 0. Asynchronous on `stream`; can
  // be captured in a graph.
  void run(const void* x, const void* w, const void* added, void* out, void* workspace,
           uintptr_t stream) const;

 private:
  struct Described;
  const std::unique_ptr<const Described> described_;
};

}  // namespace tsm::cuda
