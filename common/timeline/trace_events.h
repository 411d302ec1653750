// Writes a file of trace events for Perfetto (ui.perfetto.dev) and
// chrome://tracing: "Trace Event Format", docs.google.com/document/d/
// 1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU, as a JSON object.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace dapd {

// Describes a piece of work that took time.
struct Slice {
  std::string name;
  absl::Time begin;
  absl::Time end;
  std::vector<std::pair<std::string, int64_t>> facts;  // shown beside the slice
};

// Holds slices that follow each other, or are nested.
struct TraceTrack {
  std::string name;
  std::vector<Slice> slices;  // in any order
};

struct TraceProcess {
  int64_t pid = 0;
  std::string name;
  std::string label;  // shown behind the name; may be empty
  std::vector<TraceTrack> tracks;
};

// Writes the file aside, syncs and renames it. Times are microseconds since
// 1970, rounded down, so that slices that do not overlap still do not. `notes`
// are properties of the file, by name.
absl::Status WriteTrace(
    const std::string& path,
    const std::vector<TraceProcess>& processes,
    const std::vector<std::pair<std::string, std::string>>& notes);

}  // namespace dapd
