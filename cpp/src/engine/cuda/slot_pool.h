// The slots of a model's streams: fixed-size blocks taken from pages of device memory.
#pragma once
#include <mutex>
#include <vector>

#include "engine/cuda/memory.h"

namespace tsm::cuda {

class SlotPool {
 public:
  explicit SlotPool(int64_t floats) : floats_(floats) {}

  struct Block {
    float* memory;
    bool used;  // holds the data of its last owner; otherwise zeros
  };

  Block take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) add_page();
    const Block block = free_.back();
    free_.pop_back();
    return block;
  }
  void give(float* memory) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back({memory, true});  // add_page has reserved the room
  }

 private:
  void add_page() {
    // Each page is as large as all previous ones together, so there are few allocations and at most
    // half of the memory is unused.
    const int64_t count = blocks_ == 0 ? kFirst : blocks_;
    // One float more: the last slot of a page and the first of another are never neighbours, which
    // CudaDevice::read would copy at once.
    DeviceArray<float> page(count * floats_ + 1);
    check(cudaMemset(page.data(), 0, size_t(page.bytes())), "clearing memory");
    check(cudaStreamSynchronize(nullptr), "clearing memory");
    free_.reserve(size_t(blocks_ + count));
    pages_.reserve(pages_.size() + 1);  // throws before the first block is handed out
    for (int64_t i = count - 1; i >= 0; --i) free_.push_back({page.data() + i * floats_, false});
    pages_.push_back(std::move(page));
    blocks_ += count;
  }

  static constexpr int64_t kFirst = 16;
  const int64_t floats_;
  std::mutex mutex_;
  int64_t blocks_ = 0;
  std::vector<Block> free_;
  std::vector<DeviceArray<float>> pages_;
};

}  // namespace tsm::cuda
