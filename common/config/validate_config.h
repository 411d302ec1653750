// Rules between keys: values that contradict each other though each is valid by
// itself, and keys that have no effect beside the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/config/config.h"
#include "common/config/load_config.h"

namespace dapd {

// One line a contradiction, naming the keys; empty if there is none.
std::vector<std::string> FindContradictions(const Config& config);

// Those within the section `security`.
std::vector<std::string> FindContradictions(const SecuritySection& security);

// A warning for each key that is given in vain: that the preset's terms do not
// read, unless objective.terms replace them; and evaluation.samples where
// evaluation.temperature is 0; and run.gpus where model.device is cpu.
std::vector<std::string> WarningsOfVainKeys(const LoadedConfig& loaded);

// run.gpus: all GPUs that there are, or a number up to kMostGpus.
inline constexpr char kAllGpus[] = "auto";
inline constexpr int64_t kMostGpus = 256;

// The number of GPUs that run.gpus asks for; 0 if it is kAllGpus, or neither.
int64_t NumGpusAsked(const RunConfig& run);

// How many samples of a step a rank takes at least: the fewest that are whole
// micro-batches and whole groups of answers (rollout.group_size).
int64_t SamplesOfUnit(const Config& config);

// Splits "host:port" or "[v6]:port". False if it is neither.
bool SplitAddress(const std::string& address, std::string* host, int* port);

// The path in "file://PATH", where a file names workers; nothing for any other
// address.
std::optional<std::string> AddressFilePath(absl::string_view address);

// 127.0.0.0/8, ::1 or localhost.
bool IsLoopback(const std::string& host);

}  // namespace dapd
