// Parses "Qwen/Qwen3-4B@main", the name of a model or a data set on the Hugging
// Face hub.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

enum class HubKind { kModel, kDataset };

struct HubId {
  std::string name;      // "Qwen/Qwen3-4B"; "gpt2" for the oldest models
  std::string revision;  // a branch, a tag or a commit; empty: main

  std::string RevisionOrMain() const {
    return revision.empty() ? "main" : revision;
  }
  // Returns the id as a configuration writes it.
  std::string ToString() const {
    return revision.empty() ? name : name + "@" + revision;
  }
};

// Returns nothing if `text` cannot be a hub id. The hub's names have one or two
// parts of letters, digits, '_', '-' and '.', without ".." and "--", and no
// owner is called "models", "datasets" or "spaces". A returned name can be part
// of a path without leading out of its folder.
std::optional<HubId> ParseHubId(absl::string_view text);

// Returns the command that downloads `id` into the local cache.
std::string FetchCommand(HubKind kind, const HubId& id);

}  // namespace dapd
