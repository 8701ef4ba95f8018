#include <cuda_runtime.h>

#include "kernels/cuda/train/products.h"
#if defined(__linux__)
#include <dlfcn.h>
#endif

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>

#include "kernels/cuda/check.h"

namespace tsm::cuda {
namespace {

// The part of cublasLt's interface (versions 11 to 13) that is used here. Matrices are
// column-major.
using Opaque = void*;
using Status = int;  // 0: success
enum Compute : int { kCompute32F = 68, kComputeTf32 = 77 };
enum Operation : int32_t { kPlain = 0, kTransposed = 1 };
enum DescriptorAttribute : int { kTransposeA = 3, kTransposeB = 4 };
// Alignments of B, C and D follow that of A.
enum PreferenceAttribute : int { kMaxWorkspace = 1, kReductions = 3, kAlignmentOfA = 5 };
constexpr uint32_t kReduceInFloat = 2;  // parts of a sum are added in the compute type
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

struct Library {
  Status (*create)(Opaque* handle);
  Status (*create_descriptor)(Opaque*, Compute, cudaDataType_t scale);
  Status (*set_descriptor)(Opaque, DescriptorAttribute, const void*, size_t);
  Status (*destroy_descriptor)(Opaque);
  Status (*create_layout)(Opaque*, cudaDataType_t, uint64_t rows, uint64_t columns, int64_t step);
  Status (*destroy_layout)(Opaque);
  Status (*create_preference)(Opaque*);
  Status (*set_preference)(Opaque, PreferenceAttribute, const void*, size_t);
  Status (*destroy_preference)(Opaque);
  Status (*find)(Opaque handle, Opaque descriptor, Opaque a, Opaque b, Opaque c, Opaque d,
                 Opaque preference, int wanted, Heuristic*, int* found);
  Status (*check)(Opaque handle, Opaque descriptor, Opaque a, Opaque b, Opaque c, Opaque d,
                  const Algorithm*, Heuristic*);
  Status (*multiply)(Opaque handle, Opaque descriptor, const void* alpha, const void* a, Opaque,
                     const void* b, Opaque, const void* beta, const void* c, Opaque, void* d,
                     Opaque, const Algorithm*, void* workspace, size_t, cudaStream_t);
  bool complete = true;
};

Library look_up() {
  Library found{};
  void* loaded = nullptr;
#if defined(__linux__)
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"})
    if (!loaded) loaded = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);  // never closed
  const auto set = [&](auto& function, const char* name) {
    void* const symbol = loaded ? dlsym(loaded, name) : nullptr;
    function = reinterpret_cast<std::decay_t<decltype(function)>>(symbol);
    found.complete = found.complete && symbol;
  };
  set(found.create, "cublasLtCreate");
  set(found.create_descriptor, "cublasLtMatmulDescCreate");
  set(found.set_descriptor, "cublasLtMatmulDescSetAttribute");
  set(found.destroy_descriptor, "cublasLtMatmulDescDestroy");
  set(found.create_layout, "cublasLtMatrixLayoutCreate");
  set(found.destroy_layout, "cublasLtMatrixLayoutDestroy");
  set(found.create_preference, "cublasLtMatmulPreferenceCreate");
  set(found.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  set(found.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  set(found.find, "cublasLtMatmulAlgoGetHeuristic");
  set(found.check, "cublasLtMatmulAlgoCheck");
  set(found.multiply, "cublasLtMatmul");
#endif
  found.complete = found.complete && loaded;
  return found;
}

const Library& library() {
  static const Library found = look_up();
  return found;
}

void expect(Status status, const char* what) {
  if (status != 0)
    throw std::runtime_error(std::string("cublasLt: ") + what + ": status " +
                             std::to_string(status));
}

// A handle may be used by many threads at once. One per device, never destroyed.
Opaque handle_of_device() {
  static std::mutex mutex;
  static std::map<int, Opaque> made;
  int device = 0;
  check(cudaGetDevice(&device), "no device");
  const std::lock_guard<std::mutex> lock(mutex);
  Opaque& handle = made[device];
  if (!handle) expect(library().create(&handle), "no handle");
  return handle;
}

// An object of the library.
class Owned {
 public:
  template <class... Args>
  Owned(Status (*create)(Opaque*, Args...), Status (*destroy)(Opaque), Args... args)
      : destroy_(destroy) {
    expect(create(&object_, args...), "no description of a product");
  }
  ~Owned() { destroy_(object_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  operator Opaque() const { return object_; }

 private:
  Opaque object_ = nullptr;
  Status (*const destroy_)(Opaque);
};

cudaDataType_t type_of(DType dtype) { return dtype == DType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF; }

// In columns: out^T [m,n] = w^T x^T. A is w, B is x: their columns are the rows of w and x.
struct Description {
  Owned operation, a, b, d;

  explicit Description(const ProductShape& s, const Library& lib = library())
      : operation(lib.create_descriptor, lib.destroy_descriptor,
                  s.tf32 && s.dtype == DType::kFloat32 ? kComputeTf32 : kCompute32F, CUDA_R_32F),
        a(lib.create_layout, lib.destroy_layout, type_of(s.dtype), uint64_t(s.w_turned ? s.k : s.m),
          uint64_t(s.w_turned ? s.m : s.k), s.w_step),
        b(lib.create_layout, lib.destroy_layout, type_of(s.dtype), uint64_t(s.x_turned ? s.n : s.k),
          uint64_t(s.x_turned ? s.k : s.n), s.x_step),
        d(lib.create_layout, lib.destroy_layout, type_of(s.out), uint64_t(s.m), uint64_t(s.n),
          s.out_step) {
    const auto set_turn = [&](DescriptorAttribute matrix, bool turned) {
      const Operation turn = turned ? kTransposed : kPlain;
      expect(lib.set_descriptor(operation, matrix, &turn, sizeof turn), "transposition");
    };
    set_turn(kTransposeA, s.w_turned);
    set_turn(kTransposeB, s.x_turned);
  }
};

// The library's first choice.
Heuristic best_for(const Description& product, Opaque handle) {
  const Library& lib = library();
  const Owned preference(lib.create_preference, lib.destroy_preference);
  const uint64_t most = uint64_t(Product::kWorkspace);
  expect(lib.set_preference(preference, kMaxWorkspace, &most, sizeof most), "workspace");
  expect(lib.set_preference(preference, kReductions, &kReduceInFloat, sizeof kReduceInFloat),
         "reductions");
  const uint32_t alignment = 16;
  for (int matrix = 0; matrix < 4; ++matrix)
    expect(lib.set_preference(preference, PreferenceAttribute(kAlignmentOfA + matrix), &alignment,
                              sizeof alignment),
           "alignment");
  Heuristic best{};
  int found = 0;
  expect(lib.find(handle, product.operation, product.a, product.b, product.d, product.d, preference,
                  1, &best, &found),
         "no algorithm");
  expect(found == 1 ? best.state : -1, "no algorithm");
  return best;
}

// The shape with x's rows rounded up: above 128 to a multiple of 64, from 1,024 on to a multiple of
// the power of two between a sixteenth and an eighth of them.
ProductShape rounded(ProductShape s) {
  int64_t &rows = s.x_turned ? s.k : s.n, part = 64;
  while (part * 16 <= rows) part *= 2;
  if (rows > 128) rows = (rows + part - 1) / part * part;
  return s;
}

// If rows vary: the choice for the rounded shape, if it suits this one too. A kernel takes 2 to 3
// ms to load when it is used for the first time, and the library often chooses another one for
// other rows.
Heuristic choose(const ProductShape& exact, const Description& product, Opaque handle) {
  const bool rows_of_w_fit = !(exact.x_turned && exact.w_turned);
  if (!exact.rows_vary || !rows_of_w_fit) return best_for(product, handle);
  const ProductShape s = rounded(exact);
  using Key = std::tuple<Opaque, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool,
                         DType, DType, bool>;
  static std::mutex mutex;
  static std::map<Key, Algorithm> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const Key key{handle,     s.n,        s.m,        s.k,     s.x_step, s.w_step,
                s.out_step, s.x_turned, s.w_turned, s.dtype, s.out,    s.tf32};
  auto at = known.find(key);
  if (at == known.end()) at = known.emplace(key, best_for(Description(s), handle).algorithm).first;
  Heuristic found{};
  const Status suits = library().check(handle, product.operation, product.a, product.b, product.d,
                                       product.d, &at->second, &found);
  if (suits != 0 || found.workspace > size_t(Product::kWorkspace)) return best_for(product, handle);
  found.algorithm = at->second;
  return found;
}

}  // namespace

bool has_products() { return library().complete; }

struct Product::Described {
  const Opaque handle = handle_of_device();
  const Description product;
  const Heuristic chosen;

  explicit Described(const ProductShape& s) : product(s), chosen(choose(s, product, handle)) {}
};

Product::Product(const ProductShape& shape) : described_(std::make_unique<Described>(shape)) {}
Product::~Product() = default;
int64_t Product::workspace() const { return int64_t(described_->chosen.workspace); }

void Product::run(const void* x, const void* w, const void* added, void* out, void* workspace,
                  uintptr_t stream) const {
  const auto& [handle, product, chosen] = *described_;
  const float alpha = 1, beta = added ? 1 : 0;
  expect(library().multiply(handle, product.operation, &alpha, w, product.a, x, product.b, &beta,
                            added ? added : out, product.d, out, product.d, &chosen.algorithm,
                            workspace, chosen.workspace, reinterpret_cast<cudaStream_t>(stream)),
         "a product");
}

}  // namespace tsm::cuda
