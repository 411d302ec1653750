// Where a model or an adapter is on this machine: what `model.path`, --model,
// `lora.start_from` and --adapter name is a folder or, where there is none, the
// id of one on the Hugging Face hub, found in the local cache (hub_cache.h).
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd {

// The folder with the model's config.json. A path that exists is returned as it
// is and not looked into, unless it is an empty folder. Of a snapshot in the
// cache everything that a result depends on has to be there: config.json,
// tokenizer.json, model.safetensors or every shard that its index names, and
// each *.json and *.jinja that the hub lists beside them.
//   NOT_FOUND   an empty folder, or neither a folder nor in the cache; with
//               what to do, say the command that downloads it
//   DATA_LOSS   only half of it is there
// Exit code kData.
absl::StatusOr<std::string> FindModelFolder(const std::string& path);

// The same for a PEFT adapter: adapter_config.json and
// adapter_model.safetensors. Of a run's or a checkpoint's folder an error says
// where in it the adapter is.
absl::StatusOr<std::string> FindAdapterFolder(const std::string& path);

// What an adapter trained on the model at `path` records as its base: an id
// that FindModelFolder looks up in the cache, or of which `path` is a snapshot
// in some cache ("Qwen/Qwen3-4B@<commit>"), else `path`, with "./" in front
// where it could be taken for an id with a revision.
std::string BaseModelName(const std::string& path);

// The same of a configuration: `name` (model.name), unless it is empty. An
// error (exit code kConfig) if that is no id.
absl::StatusOr<std::string> BaseModelName(const std::string& path,
                                          const std::string& name);

}  // namespace dapd
