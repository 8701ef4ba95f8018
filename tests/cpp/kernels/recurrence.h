// Runs only the recurrence, as a layer with x = zx, the identity as W, and b = 0. Products with 0
// and 1 are exact, so the gradient of x is that of zx.
#pragma once
#include <string>
#include <vector>

#include "kernels/layer.h"

template <class D>
class Recurrence {
 public:
  Recurrence(const std::string& cell, tsm::DType dtype, int64_t H)
      : cell_(cell),
        dtype_(dtype),
        width_(tsm::compiled_cell(cell).gates * H),
        identity_(size_t(width_ * width_)),
        bias_(size_t(width_)) {
    for (int64_t i = 0; i < width_; ++i) identity_[size_t(i * (width_ + 1))] = D(1.0f);
  }

  void forward(const tsm::RecurrenceForward& a) const {
    tsm::layer_forward(cell_, dtype_, {a, input(a.zx)});
  }
  // grad_z: D, as zx.
  void backward(const tsm::RecurrenceForward& forward, tsm::RecurrenceBackward a) {
    void* const grad_zx = a.grad_z;
    a.grad_z = nullptr;
    tsm::layer_backward(
        cell_, dtype_,
        {a, input(forward.zx), nullptr, forward.y, grad_zx, nullptr, bias_.data(), nullptr});
  }

 private:
  tsm::LayerInput input(const void* zx) const {
    return {width_, zx, identity_.data(), bias_.data(), false, false};
  }

  const std::string cell_;
  const tsm::DType dtype_;
  const int64_t width_;
  std::vector<D> identity_, bias_;
};
