// GrowingViews: the beginnings of a sample's views while its rollout is
// still sampled, so that teachers can compute ahead of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "common/terms/view.h"
#include "common/tokenizer/settled_encoder.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {

// Made by ViewBuilder::StartViews. Not thread-safe.
class GrowingViews {
 public:
  // The rollout goes on with these tokens. Tokenizes no text twice, so that all
  // calls together cost what the whole answer costs once.
  absl::Status Grow(std::span<const int32_t> ids);

  // The prefixes of the views that need a rollout, as far as they are known;
  // nothing is scored in them. Where a prompt shows the rollout, its last words
  // are left out, since what follows may change their tokens; the rest is
  // nearly always, but not certainly, what ViewBuilder::Build will give.
  const Views& views() const { return views_; }

 private:
  friend class ViewBuilder;

  // A view whose prompt shows the rollout.
  struct Shown {
    ViewName view;
    int64_t limit;         // tokens that the prompt is cut to
    bool loses_beginning;  // there, else its end
    SettledEncoder text;   // up to the rollout, then with it
  };

  explicit GrowingViews(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  void SetPrefix(const Shown& shown);
  // The text of the tokens that are not part of one yet, without those at the
  // end that are a part of a character.
  absl::StatusOr<std::string> TakeText();

  const Tokenizer* tokenizer_;
  std::vector<ViewName> continued_;  // views that go on with the rollout
  std::vector<Shown> shown_;
  std::vector<int32_t> undecoded_;
  Views views_;
};

}  // namespace dapd
