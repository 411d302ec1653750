// "Qwen/Qwen3-4B@main": what a model or a data set is called on the Hugging
// Face hub.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

enum class HubKind { kModel, kDataset };

struct HubId {
  std::string name;      // "Qwen/Qwen3-4B", or "gpt2" for the oldest ones
  std::string revision;  // a branch, a tag or a commit; empty: main

  std::string RevisionOrMain() const {
    return revision.empty() ? "main" : revision;
  }
  // As it is written in a configuration.
  std::string ToString() const {
    return revision.empty() ? name : name + "@" + revision;
  }
};

// Nothing if `text` cannot be one: the hub's names have one or two parts of
// letters, digits, '_', '-' and '.', without ".." and "--", and no owner is
// called "models", "datasets" or "spaces". What is returned can be part of a
// path that leads nowhere else.
std::optional<HubId> ParseHubId(absl::string_view text);

// The command that brings it into the local cache.
std::string FetchCommand(HubKind kind, const HubId& id);

}  // namespace dapd
