// Single-bit flips and truncations of every file that the services read: each
// is refused, or proven harmless, or counted as a damage that no check at load
// can see. The last is allowed for base models only, which come without a
// digest; BaseDigest, which a run records, must see it.
//
// DAPD_FLIPS sets the number of flips and truncations for each kind of file.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/sha256.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/base_digest.h"
#include "common/model/weights/weights.h"
#include "common/training/policy.h"
#include "services/trainer/record/checkpoint.h"
#include "services/trainer/record/ledger.h"
#include "tests/fakes/temp_path.h"
#include "tests/fakes/tiny_model.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

// Reads a folder and returns a digest of what it holds.
using Loader = std::function<absl::StatusOr<std::string>(const std::string&)>;

std::string ReadAll(const std::string& path) {
  return ReadFile(path, uint64_t{1} << 32).value();
}

// The file is neither synced nor renamed, because this happens thousands of
// times.
void Overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.flush().good()) << path;
}

void HashTensor(const at::Tensor& tensor, Sha256& hash) {
  if (!tensor.defined()) return;
  const at::Tensor dense = tensor.detach().contiguous();
  hash.Update({static_cast<const char*>(dense.data_ptr()), dense.nbytes()});
}

absl::StatusOr<std::string> LoadModel(const std::string& folder) {
  auto loaded = LoadModelWeights(folder, at::kFloat, at::kCPU);
  if (!loaded.ok()) return loaded.status();
  ModelWeights weights = **loaded;
  const ModelConfig& config = weights.config;
  Sha256 hash;
  hash.Update(absl::StrFormat("%s %d %.17g %.17g",
                              weights.layout_digest,
                              config.max_positions,
                              config.rope_theta,
                              config.rms_norm_eps));
  for (const int64_t id : config.eos_token_ids) hash.Update(absl::StrCat(id));
  for (const WeightSlot& slot : WeightSlots(weights)) {
    HashTensor(*slot.target, hash);
  }
  return hash.HexDigest();
}

// Returns the digest of the base model that a checkpoint records.
std::string FolderDigest(const std::string& folder) {
  return BaseDigest(folder).value();
}

std::string AdapterContent(const Adapter& adapter) {
  Sha256 hash;
  hash.Update(
      absl::StrFormat("%d %.17g", adapter.config.rank, adapter.config.alpha));
  for (const at::Tensor& tensor : adapter.Tensors()) HashTensor(tensor, hash);
  return hash.HexDigest();
}

// Returns which check a message comes from.
std::string CheckOf(const absl::Status& status) {
  const std::vector<std::pair<const char*, const char*>> checks = {
      {"not what was written", "digest"},
      {"do not have the digest", "digest"},
      {"is damaged", "digest"},
      {"not finite", "finite values"},
      {"not valid JSON", "JSON"},
      {"occurs twice", "JSON"},
      {"nested too deeply", "JSON"},
      {"is truncated", "length"},
      {"is it truncated", "length"},
      {"too short", "length"},
      {"the header claims", "length"},
      {"data_offsets", "header"},
      {"has dtype", "header"},
      {"the header", "header"},
      {"offset", "header"},
      {"extent", "header"},
      {"shape", "shape"},
      {"is missing", "names"},
      {"belongs to no target", "names"},
      {"does not belong", "names"},
      {"lacks PEFT's prefix", "names"},
      {"places", "index"},
      {"does not list", "index"},
      {"weight_map", "index"},
      {"cannot open", "index"}};
  for (const auto& [text, check] : checks) {
    if (absl::StrContains(status.message(), text)) return check;
  }
  return "settings";
}

struct Tally {
  int64_t tried = 0;
  int64_t harmless = 0;
  int64_t unseen = 0;
  std::map<std::string, int64_t> refused;
  std::vector<std::string> examples;  // of damages that no check saw
};

int64_t NumFlips() {
  const char* text = std::getenv("DAPD_FLIPS");
  return text == nullptr ? 2000 : std::atoll(text);
}

class BitFlipsTest : public ::testing::Test {
 protected:
  // Damages one file of `folder` after the other and loads the folder.
  // `seen_by_digest` is called after a load that saw nothing, and returns
  // whether a digest that was recorded before sees the damage.
  Tally Damage(const std::string& folder,
               const Loader& load,
               const std::function<bool()>& seen_by_digest) {
    std::vector<std::string> paths;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    const auto intact = load(folder);
    EXPECT_TRUE(intact.ok()) << intact.status();
    Tally tally;
    std::mt19937_64 random(1);
    for (int64_t i = 0; i < NumFlips(); ++i) {
      const std::string& path = paths[static_cast<size_t>(i) % paths.size()];
      const std::string good = ReadAll(path);
      std::string bad = good;
      // Every eighth damage is a truncation.
      const size_t at = random() % good.size();
      const int bit = static_cast<int>(random() % 8);
      if (i / static_cast<int64_t>(paths.size()) % 8 == 7) {
        bad.resize(at);
      } else {
        bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      }
      Overwrite(path, bad);
      ++tally.tried;
      const auto loaded = load(folder);
      if (!loaded.ok()) {
        ++tally.refused[CheckOf(loaded.status())];
      } else if (*loaded == *intact) {
        ++tally.harmless;
      } else if (seen_by_digest()) {
        ++tally.refused["recorded digest"];
      } else {
        ++tally.unseen;
        tally.examples.push_back(
            absl::StrCat(path, " byte ", at, " bit ", bit));
      }
      Overwrite(path, good);
    }
    return tally;
  }

  static void Report(const std::string& what, const Tally& tally) {
    std::string line = absl::StrFormat(
        "%-20s %6d damaged: %d harmless", what, tally.tried, tally.harmless);
    for (const auto& [check, count] : tally.refused) {
      absl::StrAppend(&line, ", ", count, " by ", check);
    }
    absl::StrAppend(&line, ", ", tally.unseen, " unseen");
    std::puts(line.c_str());
    EXPECT_EQ(tally.unseen, 0) << tally.examples[0];
    EXPECT_GT(tally.tried, 0);
  }

  const std::string folder_ = TempPath("bit_flips");
};

TEST_F(BitFlipsTest, OfABaseModelAreRefusedHarmlessOrChangeItsDigest) {
  WriteTinyModel(folder_, 7);
  const std::string recorded = FolderDigest(folder_);
  const Tally tally = Damage(
      folder_, LoadModel, [&] { return FolderDigest(folder_) != recorded; });
  Report("base model", tally);
}

// Splits model.safetensors into two files and writes the index.
void Shard(const std::string& folder) {
  const std::string path = JoinPath(folder, "model.safetensors");
  const NamedTensors all = ParseSafetensors(ReadAll(path), path).value();
  nlohmann::json map;
  for (const int part : {0, 1}) {
    NamedTensors tensors;
    const std::string shard = absl::StrCat("part-", part, ".safetensors");
    for (size_t i = 0; i < all.size(); ++i) {
      if (i % 2 != static_cast<size_t>(part)) continue;
      tensors.push_back(all[i]);
      map[all[i].first] = shard;
    }
    ASSERT_TRUE(WriteSafetensors(JoinPath(folder, shard), tensors, {}).ok());
  }
  ASSERT_TRUE(
      WriteFileAtomically(JoinPath(folder, "model.safetensors.index.json"),
                          nlohmann::json{{"weight_map", map}}.dump())
          .ok());
  fs::remove(path);
}

TEST_F(BitFlipsTest, OfAShardedModelAreRefusedHarmlessOrChangeItsDigest) {
  WriteTinyModel(folder_, 7);
  Shard(folder_);
  const std::string recorded = FolderDigest(folder_);
  const Tally tally = Damage(
      folder_, LoadModel, [&] { return FolderDigest(folder_) != recorded; });
  Report("sharded base model", tally);
}

class AdapterBitFlipsTest : public BitFlipsTest {
 protected:
  void SetUp() override {
    WriteTinyModel(folder_ + "_model", 7);
    model_ = ReadModelConfig(folder_ + "_model").value();
    adapter_ = MakeFreshAdapter(
        model_, {.rank = 4, .alpha = 8.0}, /*seed=*/3, at::kCPU);
    for (auto& layer : adapter_.layers) {
      for (LoraPair& pair : layer) pair.b = at::randn_like(pair.b) * 0.1;
    }
  }

  ModelConfig model_;
  Adapter adapter_;
};

TEST_F(AdapterBitFlipsTest, OfAnAdapterFolderAreRefusedOrHarmless) {
  ASSERT_TRUE(WriteAdapter(folder_, adapter_, "/models/base").ok());
  const Loader load =
      [&](const std::string& folder) -> absl::StatusOr<std::string> {
    const auto read = ReadAdapter(folder, model_, at::kCPU);
    if (!read.ok()) return read.status();
    return AdapterContent(*read);
  };
  Report("adapter", Damage(folder_, load, [] { return false; }));
}

TEST_F(AdapterBitFlipsTest, OfAnAdapterOnTheWireAreRefused) {
  const SerializedAdapter sent =
      SerializeAdapter(adapter_, "/models/base").value();
  ASSERT_TRUE(MakeDirectories(folder_).ok());
  for (const auto& [name, bytes] : std::map<std::string, absl::string_view>{
           {"config", sent.config_json},
           {"tensors", sent.tensors.view()},
           {"digest", sent.digest}}) {
    Overwrite(JoinPath(folder_, name), std::string(bytes));
  }
  const Loader load =
      [&](const std::string& folder) -> absl::StatusOr<std::string> {
    SerializedAdapter received;
    received.config_json = ReadAll(JoinPath(folder, "config"));
    received.tensors = ReadAll(JoinPath(folder, "tensors"));
    received.digest = ReadAll(JoinPath(folder, "digest"));
    const auto read = ParseAdapter(received, model_, at::kCPU);
    if (!read.ok()) return read.status();
    return AdapterContent(*read);
  };
  const Tally tally = Damage(folder_, load, [] { return false; });
  Report("adapter on the wire", tally);
  EXPECT_EQ(tally.harmless, 0);
}

class CheckpointBitFlipsTest : public AdapterBitFlipsTest {
 protected:
  void SetUp() override {
    AdapterBitFlipsTest::SetUp();
    SetMinLogSeverity(Severity::kError);  // every damage gives a warning
    Policy policy(adapter_.Clone(), std::nullopt, {.snapshot_interval = 1});
    policy.SetFlatGradient(at::randn_like(policy.FlatGradient()));
    ASSERT_TRUE(policy.Step().ok());
    ASSERT_NE(policy.snapshot(), nullptr);
    identity_.base_digest = "base";
    identity_.data_digest = "data";
    identity_.settings = {{"trainer.learning_rate", "1e-3"}};
    ASSERT_TRUE(MakeDirectories(folder_).ok());
    const absl::Status saved =
        SaveCheckpoint(folder_, model_, policy, identity_, 1);
    ASSERT_TRUE(saved.ok()) << saved;
  }

  absl::StatusOr<std::string> Load(const std::string& folder) {
    auto loaded = LoadNewestCheckpoint(folder, identity_, model_, at::kCPU);
    // Moves the files back to where the next damage expects them.
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".damaged") continue;
      fs::path name = entry.path();
      fs::rename(entry.path(), name.replace_extension());
    }
    if (!loaded.ok()) return loaded.status();
    const PolicyState& state = loaded->value();
    Sha256 hash;
    hash.Update(absl::StrCat(state.version, " ", state.snapshot_version));
    hash.Update(AdapterContent(state.live));
    hash.Update(AdapterContent(state.snapshot.value()));
    for (const auto& [name, tensor] : state.moments) {
      hash.Update(name);
      hash.Update(tensor.bytes());
    }
    return hash.HexDigest();
  }

  RunIdentity identity_;
};

TEST_F(CheckpointBitFlipsTest, OfACheckpointAreAllRefused) {
  const Tally tally = Damage(
      folder_,
      [this](const std::string& folder) { return Load(folder); },
      [] { return false; });
  Report("checkpoint", tally);
  EXPECT_EQ(tally.harmless, 0);
}

// A ledger is never refused: a damaged event is not recalled, and its answer is
// sampled again. An event must never be recalled wrongly.
TEST_F(BitFlipsTest, OfALedgerNeverChangeAnAnswer) {
  SetMinLogSeverity(Severity::kError);
  ASSERT_TRUE(MakeDirectories(folder_).ok());
  const std::string path = JoinPath(folder_, "ledger.jsonl");
  constexpr int64_t kAnswers = 20;
  const auto answer = [](int64_t sample) {
    RolloutResult result;
    for (int64_t i = 0; i <= sample; ++i) {
      result.ids.push_back(static_cast<int32_t>(100 * sample + i));
    }
    result.policy_version = 4;
    result.adapter_digest = "digest";
    return result;
  };
  {
    const auto ledger = Ledger::Open(path).value();
    ASSERT_TRUE(ledger->Started(4, "digest").ok());
    for (int64_t i = 0; i < kAnswers; ++i) {
      ASSERT_TRUE(ledger->Accepted(5, {i}, "problem", answer(i)).ok());
    }
  }
  const std::string good = ReadAll(path);
  std::mt19937_64 random(2);
  Tally tally;
  for (int64_t n = 0; n < NumFlips(); ++n) {
    std::string bad = good;
    const size_t at = random() % good.size();
    if (n % 8 == 7) {
      bad.resize(at);
    } else {
      bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
    }
    Overwrite(path, bad);
    ++tally.tried;
    const auto ledger = Ledger::Open(path).value();
    int64_t recalled = 0;
    for (int64_t i = 0; i < kAnswers; ++i) {
      const RolloutResult* found =
          ledger->Recall(5, {i}, "problem", 4, "digest");
      if (found == nullptr) continue;
      ++recalled;
      if (found->ids != answer(i).ids) {
        ++tally.unseen;
        tally.examples.push_back(absl::StrCat("byte ", at));
      }
    }
    ++(recalled == kAnswers ? tally.harmless : tally.refused["sampling again"]);
  }
  Report("ledger", tally);
}

}  // namespace
}  // namespace dapd
