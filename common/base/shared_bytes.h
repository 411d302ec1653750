// SharedBytes: bytes with shared ownership, so that a large payload reaches a
// file, a parser or the network without a copy.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace dapd {

// A value type: copies share the bytes, which by convention do not change once
// they are shared. Safe to read from any thread.
class SharedBytes {
 public:
  SharedBytes() = default;
  // Takes over.
  SharedBytes(std::string bytes) {  // NOLINT: a string is bytes
    auto owner = std::make_shared<const std::string>(std::move(bytes));
    view_ = *owner;
    owner_ = std::move(owner);
  }
  // `bytes` stay valid for as long as `owner` lives.
  SharedBytes(std::shared_ptr<const void> owner, absl::string_view bytes)
      : owner_(std::move(owner)), view_(bytes) {}

  absl::string_view view() const { return view_; }
  const char* data() const { return view_.data(); }
  size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // `size` bytes from `offset` on, fewer at the end.
  SharedBytes Part(size_t offset, size_t size) const {
    return {owner_, view_.substr(offset, size)};
  }

  friend bool operator==(const SharedBytes& a, const SharedBytes& b) {
    return a.view_ == b.view_;
  }

 private:
  std::shared_ptr<const void> owner_;
  absl::string_view view_;
};

}  // namespace dapd
