// GrowingViews holds the beginnings of a sample's views while its rollout is
// still being sampled, so that teachers can compute them ahead.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "common/terms/view.h"
#include "common/tokenizer/settled_encoder.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {

// ViewBuilder::StartViews makes it. Not thread-safe.
class GrowingViews {
 public:
  // Appends these tokens to the rollout. No text is tokenized twice, so that
  // all calls together cost as much as tokenizing the whole answer once.
  absl::Status Grow(std::span<const int32_t> ids);

  // Returns the prefixes of the views that need a rollout, as far as they are
  // known; they score no token. If a prompt shows the rollout, the last words
  // of the rollout are left out, since the text that follows may change their
  // tokens. The rest nearly always equals what ViewBuilder::Build will return,
  // but not certainly.
  const Views& views() const { return views_; }

 private:
  friend class ViewBuilder;

  // Holds a view whose prompt shows the rollout.
  struct Shown {
    ViewName view;
    int64_t limit;         // the prompt is cut to this number of tokens
    bool loses_beginning;  // whether the cut removes the beginning, not the end
    SettledEncoder text;   // the prompt up to the rollout, followed by the
                           // rollout
  };

  explicit GrowingViews(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  void SetPrefix(const Shown& shown);
  // Returns the text of the tokens that were not yet decoded, without the
  // tokens at the end that form an incomplete character.
  absl::StatusOr<std::string> TakeText();

  const Tokenizer* tokenizer_;
  std::vector<ViewName> continued_;  // views whose rollout continues
  std::vector<Shown> shown_;
  std::vector<int32_t> undecoded_;
  Views views_;
};

}  // namespace dapd
