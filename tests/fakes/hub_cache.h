// Makes a cache of the Hugging Face hub in a folder of the running test, filled
// as huggingface_hub fills one. HF_HUB_CACHE names it while the object lives.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/sha256.h"
#include "tests/fakes/temp_path.h"

namespace dapd {

class FakeHubCache {
 public:
  static constexpr char kRepository[] = "models--org--small";
  static constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

  FakeHubCache() : path_(TempPath("hub")) {
    Make(path_);
    ::setenv("HF_HUB_CACHE", path_.c_str(), /*overwrite=*/1);
  }
  ~FakeHubCache() { ::unsetenv("HF_HUB_CACHE"); }

  const std::string& path() const { return path_; }
  // `repository` is a name such as "models--Qwen--Qwen3-4B".
  std::string Snapshot(const std::string& repository,
                       const std::string& commit = kCommit) const {
    return path_ + "/" + repository + "/snapshots/" + commit;
  }

  void AddRef(const std::string& repository,
              const std::string& revision,
              const std::string& commit = kCommit) const {
    Write(path_ + "/" + repository + "/refs/" + revision, commit);
  }

  // Adds a blob and a link to it. Returns the path of the blob.
  std::string AddFile(const std::string& repository,
                      const std::string& name,
                      const std::string& bytes) const {
    const std::string blob =
        path_ + "/" + repository + "/blobs/" + Sha256Hex(name + bytes);
    Write(blob, bytes);
    const std::filesystem::path link = Snapshot(repository) + "/" + name;
    Make(link.parent_path());
    std::filesystem::remove(link);
    std::filesystem::create_symlink(
        std::filesystem::relative(blob, link.parent_path()), link);
    return blob;
  }

  void AddIncomplete(const std::string& repository) const {
    Write(path_ + "/" + repository + "/blobs/abc.1234abcd.incomplete", "half");
  }

  // Adds the hub's list of the commit's files: their sizes by name.
  void AddList(const std::string& repository,
               const std::map<std::string, uint64_t>& sizes) const {
    nlohmann::ordered_json files = nlohmann::ordered_json::object();
    for (const auto& [name, size] : sizes) {
      files[name] = {{"size", size}, {"blob_id", "0"}};
    }
    const nlohmann::ordered_json list = {{"format_version", 1},
                                         {"files", files}};
    Write(path_ + "/" + repository + "/trees/" + kCommit + ".json",
          list.dump());
  }

  static void Write(const std::string& path, const std::string& bytes) {
    Make(std::filesystem::path(path).parent_path());
    ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  }

 private:
  static void Make(const std::string& folder) {
    ASSERT_TRUE(MakeDirectories(folder).ok());
  }
  const std::string path_;
};

}  // namespace dapd
