#include "common/timeline/trace_events.h"

#include <algorithm>
#include <tuple>

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(
      -1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// Writes the events of a file, one per line.
class EventWriter {
 public:
  explicit EventWriter(AtomicFileWriter* file) : file_(file) {}

  absl::Status Append(const Json& event) {
    RETURN_IF_ERROR(file_->Append(is_first_ ? "\n" : ",\n"));
    is_first_ = false;
    return file_->Append(Dump(event));
  }

  // Describes a process, or its track `tid`.
  absl::Status Describe(const char* what,
                        int64_t pid,
                        int64_t tid,
                        const Json& facts) {
    return Append({{"name", what},
                   {"ph", "M"},
                   {"pid", pid},
                   {"tid", tid},
                   {"args", facts}});
  }

 private:
  AtomicFileWriter* const file_;
  bool is_first_ = true;
};

absl::Status WriteTrack(int64_t pid,
                        int64_t tid,
                        const TraceTrack& track,
                        EventWriter* events) {
  RETURN_IF_ERROR(
      events->Describe("thread_name", pid, tid, {{"name", track.name}}));
  RETURN_IF_ERROR(
      events->Describe("thread_sort_index", pid, tid, {{"sort_index", tid}}));
  std::vector<const Slice*> slices;
  for (const Slice& slice : track.slices) slices.push_back(&slice);
  // A slice within another slice comes behind it.
  std::ranges::stable_sort(slices, [](const Slice* a, const Slice* b) {
    return std::tie(a->begin, b->end) < std::tie(b->begin, a->end);
  });
  for (const Slice* slice : slices) {
    const int64_t begin = absl::ToUnixMicros(slice->begin);
    Json facts = Json::object();
    for (const auto& [name, value] : slice->facts) facts[name] = value;
    RETURN_IF_ERROR(
        events->Append({{"name", slice->name},
                        {"ph", "X"},
                        {"ts", begin},
                        {"dur", absl::ToUnixMicros(slice->end) - begin},
                        {"pid", pid},
                        {"tid", tid},
                        {"args", std::move(facts)}}));
  }
  return absl::OkStatus();
}

absl::Status WriteProcess(const TraceProcess& process, EventWriter* events) {
  const int64_t pid = process.pid;
  RETURN_IF_ERROR(
      events->Describe("process_name", pid, 0, {{"name", process.name}}));
  RETURN_IF_ERROR(
      events->Describe("process_sort_index", pid, 0, {{"sort_index", pid}}));
  if (!process.label.empty()) {
    RETURN_IF_ERROR(events->Describe(
        "process_labels", pid, 0, {{"labels", process.label}}));
  }
  int64_t tid = 0;
  for (const TraceTrack& track : process.tracks) {
    RETURN_IF_ERROR(WriteTrack(pid, ++tid, track, events));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteTrace(
    const std::string& path,
    const std::vector<TraceProcess>& processes,
    const std::vector<std::pair<std::string, std::string>>& notes) {
  ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Open(path));
  Json other = Json::object();
  for (const auto& [name, note] : notes) other[name] = note;
  RETURN_IF_ERROR(file.Append("{\"displayTimeUnit\":\"ms\",\"otherData\":"));
  RETURN_IF_ERROR(file.Append(Dump(other)));
  RETURN_IF_ERROR(file.Append(",\"traceEvents\":["));
  EventWriter events(&file);
  for (const TraceProcess& process : processes) {
    RETURN_IF_ERROR(WriteProcess(process, &events));
  }
  RETURN_IF_ERROR(file.Append("\n]}\n"));
  return file.Commit();
}

}  // namespace dapd
