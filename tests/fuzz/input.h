// Code that the fuzz targets share.
//
// A target is a file <name>_fuzz.cc that defines LLVMFuzzerTestOneInput, and a
// folder corpus/<name>/ of small inputs. It checks more than "no crash", with
// Check (common/base/check.h): an accepted input must survive a round trip, a
// fast algorithm must agree with a slow one, a limit must hold.
//
// In the normal build replay_main.cc runs every corpus as a test; with
// DAPD_FUZZ libFuzzer runs it (tests/fuzz/run.sh).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace dapd {

inline absl::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Takes numbers and texts from the front of an input; gives zeros at its end.
class InputReader {
 public:
  InputReader(const uint8_t* data, size_t size) : rest_(AsText(data, size)) {}

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return byte;
  }
  uint32_t Number() {
    uint32_t number = 0;
    for (int i = 0; i < 4; ++i) number = (number << 8) | Byte();
    return number;
  }
  // Returns the text up to the next zero byte, which is taken as well.
  std::string Text() {
    const size_t end = rest_.find('\0');
    const std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end == absl::string_view::npos ? rest_.size()
                                                       : end + 1);
    return text;
  }
  std::string Rest() {
    const std::string rest(rest_);
    rest_ = {};
    return rest;
  }
  bool empty() const { return rest_.empty(); }

 private:
  absl::string_view rest_;
};

// Is a folder for parsers that read files: in memory if the system has
// /dev/shm; removed at the end of the process.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file (not synced) and returns its path.
  std::string Write(const std::string& name, absl::string_view bytes) const;
  void Remove(const std::string& name) const;

 private:
  std::string path_;
};

}  // namespace dapd
