// Checks what is asked for, and copies it into a request. No lock is held.
#pragma once
#include <memory>
#include <string_view>

#include "engine/pool/request.h"

namespace tsm {

// Of a key or a new key: 1 to kLongestKey bytes.
void check_name(const char* name, std::string_view value);

class Fill {
 public:
  explicit Fill(const Model& model) : model_(model), any_(model.create_stream()) {}
  void check(const Terms& terms) const;
  int64_t blob_bytes() const { return any_->blob_bytes(); }
  void fill(Request& request, const FeedRequest& asked, const PoolOptions& options) const;
  void fill(Request& request, const GenerateRequest& asked, const PoolOptions& options) const;

 private:
  // The stream may have to go back to where it is when the request begins.
  void keep_before(Request& request) const;

  const Model& model_;
  const std::unique_ptr<Stream> any_;  // a chunk is checked with a stream
};

}  // namespace tsm
