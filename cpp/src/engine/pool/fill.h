// Checks the arguments of a request and copies them into it. No lock is held.
#pragma once
#include <memory>
#include <string_view>

#include "engine/pool/request.h"

namespace tsm {

// Checks a key or a new key: 1 to kLongestKey bytes.
void check_name(const char* name, std::string_view value);

class Fill {
 public:
  explicit Fill(const Model& model) : model_(model), any_(model.create_stream()) {}
  void check(const Terms& terms) const;
  int64_t blob_bytes() const { return any_->blob_bytes(); }
  void fill(Request& request, const FeedRequest& asked, const PoolOptions& options) const;
  void fill(Request& request, const GenerateRequest& asked, const PoolOptions& options) const;

 private:
  // Makes room for a copy of the stream, to restore it if the request fails.
  void keep_before(Request& request) const;

  const Model& model_;
  const std::unique_ptr<Stream> any_;  // needed to check a chunk
};

}  // namespace tsm
