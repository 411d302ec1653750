// A run folder with a checkpoint, with the files that copies read.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"

#include "common/base/append_file.h"
#include "common/base/files.h"

namespace dapd {

inline void WriteIn(const std::string& folder,
                    const std::string& name,
                    const std::string& text) {
  const std::string path = JoinPath(folder, name);
  ASSERT_TRUE(MakeDirectories(path.substr(0, path.rfind('/'))).ok());
  ASSERT_TRUE(WriteFileAtomically(path, text).ok());
}

inline void AppendIn(const std::string& folder,
                     const std::string& name,
                     const std::string& text) {
  auto file = AppendFile::Open(JoinPath(folder, name));
  ASSERT_TRUE(file.ok() && file->Append(text).ok());
}

// Writes what a trainer saves with its checkpoint of `step`.
inline void SaveStep(const std::string& folder, int64_t step) {
  const std::string checkpoint =
      absl::StrFormat("checkpoints/step-%06d/", step);
  WriteIn(folder, checkpoint + "state.json", absl::StrCat("state ", step));
  WriteIn(folder, checkpoint + "manifest.json", absl::StrCat("of ", step));
  WriteIn(folder, "config.yaml", "run: {name: example}\n");
  WriteIn(folder,
          "adapter/adapter_model.safetensors",
          absl::StrCat("adapter ", step));
  WriteIn(folder, absl::StrFormat("samples/step-%06d.jsonl", step), "sample\n");
  AppendIn(folder, "metrics.jsonl", absl::StrCat("metrics ", step, "\n"));
  AppendIn(folder, "ledger.jsonl", absl::StrCat("ledger ", step, "\n"));
}

}  // namespace dapd
