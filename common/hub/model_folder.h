// Finds a model or an adapter on this machine. `model.path`, --model,
// `lora.start_from` and --adapter name a folder or, if there is no such folder,
// an id on the Hugging Face hub, which is looked up in the local cache
// (hub_cache.h).
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd {

// Returns the folder with the model's config.json. A path that exists is
// returned unchanged and is not inspected, unless it is an empty folder. A
// snapshot in the cache must have everything that affects results: config.json,
// tokenizer.json, model.safetensors or every shard that its index names, and
// each *.json and *.jinja that the hub lists beside them.
//   NOT_FOUND   `path` is an empty folder, or neither a folder nor in the
//               cache; the message says what to do, for example how to
//               download it
//   DATA_LOSS   the model is only partly in the cache
// Errors have exit code kData.
absl::StatusOr<std::string> FindModelFolder(const std::string& path);

// Returns the folder of a PEFT adapter: adapter_config.json and
// adapter_model.safetensors. If `path` is the folder of a run or a checkpoint,
// the error says where in it the adapter is.
absl::StatusOr<std::string> FindAdapterFolder(const std::string& path);

// Returns the name of the base for an adapter that was trained on the model at
// `path`: an id that FindModelFolder looks up in the cache; or the id of which
// `path` is a snapshot in some cache ("Qwen/Qwen3-4B@<commit>"); otherwise
// `path`, with "./" in front if it looks like an id with a revision.
std::string BaseModelName(const std::string& path);

// Returns `name` (model.name of a configuration), or BaseModelName(path) if it
// is empty. Returns an error (exit code kConfig) if `name` is not an id.
absl::StatusOr<std::string> BaseModelName(const std::string& path,
                                          const std::string& name);

}  // namespace dapd
