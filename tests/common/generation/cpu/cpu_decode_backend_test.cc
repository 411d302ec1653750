#include "common/generation/cpu/cpu_decode_backend.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/aten/aten_backend.h"
#include "common/model/reference/decoder.h"
#include "tests/fakes/model_on_device.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/trained_adapter.h"
#include "tests/fakes/worse.h"

namespace dapd {
namespace {

// Says what the weights are and how the panels hold them.
enum class Storage { kFloat32, kFloat32OfBFloat16, kBFloat16 };

std::shared_ptr<const ModelWeights> MakeModel(const std::string& family,
                                              Storage storage) {
  if (storage == Storage::kFloat32) return MakeRandomModel(family);
  const auto narrow = MakeRandomModel(family, 1, at::kBFloat16);
  if (storage == Storage::kBFloat16) return narrow;
  return OnDevice(*narrow, at::kCPU, at::kFloat);
}

std::vector<int32_t> MakeIds(int64_t count, int32_t seed) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back((seed * 31 + i * 7) % 97);
  return ids;
}

// Returns the largest difference of the logits of a prompt and of the tokens
// decoded after it.
double LogitsError(const std::shared_ptr<const ModelWeights>& weights,
                   const Adapter* adapter,
                   CpuLevel level) {
  const std::vector<int32_t> ids = MakeIds(50, 3);
  constexpr int64_t kPrompt = 37;
  CpuDecoder decoder(PackModel(*weights), DecodeKernelsOf(level));
  CpuAdapter packed;
  if (adapter != nullptr) packed = PackAdapter(*adapter, weights->config);
  CpuKvCache fast(weights->config, 60, weights->dtype() == at::kBFloat16);
  KvCache slow(weights->config, 60, weights->dtype(), at::kCPU);
  double worst = 0.0;
  for (int64_t end = kPrompt; end <= 50; ++end) {
    const int64_t begin = end == kPrompt ? 0 : end - 1;
    const TokenRun run = {
        &fast,
        std::span(ids).subspan(static_cast<size_t>(begin),
                               static_cast<size_t>(end - begin))};
    decoder.Forward(adapter == nullptr ? nullptr : &packed, std::span(&run, 1));
    const int64_t row = end - begin - 1;
    const at::Tensor ours =
        at::from_blob(const_cast<float*>(decoder.Logits(std::span(&row, 1))),
                      {weights->config.vocab_size},
                      at::kFloat);
    const at::Tensor tokens =
        at::tensor(std::vector<int64_t>(ids.begin() + begin, ids.begin() + end),
                   at::kLong);
    KvCache* cache = &slow;
    const at::Tensor hidden =
        begin == 0
            ? ForwardPrompt(*weights, adapter, tokens, &slow)
            : ForwardTokens(*weights, adapter, tokens, std::span(&cache, 1));
    worst = Worse(
        worst,
        (ours - ApplyHead(*weights, hidden)[0]).abs().max().item<double>());
  }
  return worst;
}

TEST(CpuDecoderTest, LogitsAgreeWithTheSlowTwin) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    for (const Storage storage :
         {Storage::kFloat32, Storage::kFloat32OfBFloat16, Storage::kBFloat16}) {
      const auto weights = MakeModel(family, storage);
      const auto everywhere = MakeAdapter(*weights);
      const auto somewhere =
          MakeAdapter(*weights, {"q_proj", "v_proj", "up_proj"});
      const bool is_narrow = storage == Storage::kBFloat16;
      // A unit in the last place of a bfloat16 logit between 8 and 16 is 1/16.
      // Both programs round equal values, but after sums in different orders.
      const double limit = is_narrow ? 0.5 : 2e-4;
      for (int level = 0; level <= static_cast<int>(MachineCpuLevel());
           ++level) {
        for (const Adapter* adapter : {static_cast<const Adapter*>(nullptr),
                                       everywhere.get(),
                                       somewhere.get()}) {
          const double error =
              LogitsError(weights, adapter, static_cast<CpuLevel>(level));
          RecordProperty(family + std::to_string(static_cast<int>(storage)) +
                             CpuLevelName(static_cast<CpuLevel>(level)),
                         std::to_string(error));
          EXPECT_LT(error, limit)
              << family << " " << static_cast<int>(storage) << " " << level;
        }
      }
    }
  }
}

using Tokens = std::map<int64_t, std::vector<std::pair<int32_t, float>>>;

// Returns all tokens by slot; each slot stops at its number of tokens.
Tokens RunAll(DecodeBackend& backend,
              const std::map<int64_t, int64_t>& lengths) {
  Tokens tokens;
  std::map<int64_t, int64_t> left = lengths;
  while (!left.empty()) {
    for (const DecodedToken& token : backend.Step()) {
      tokens[token.slot].emplace_back(token.token, token.logprob);
      if (--left[token.slot] > 0) continue;
      left.erase(token.slot);
      backend.Stop(token.slot);
    }
  }
  return tokens;
}

DecodeRequest MakeRequest(int32_t seed, int64_t prompt, int64_t answer) {
  return {
      .prompt_ids = MakeIds(prompt, seed),
      .sampling = {.temperature = 1.0, .top_k = 20, .max_new_tokens = answer},
      .key = {.seed = 5, .example = static_cast<uint32_t>(seed)}};
}

class ThreadsRestored {
 public:
  ~ThreadsRestored() { at::set_num_threads(threads_); }

 private:
  const int threads_ = at::get_num_threads();
};

TEST(CpuDecodeBackendTest, BitsDependOnTheRequestAlone) {
  const ThreadsRestored restored;
  for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
    const auto weights = MakeModel("qwen3", storage);
    const auto model = PackModel(*weights);
    const auto adapter = MakeAdapter(*weights);
    std::vector<std::pair<int32_t, float>> alone;
    {
      CpuDecodeBackend backend(model, {.slots = 1});
      backend.SetAdapter(adapter);
      backend.Start(0, MakeRequest(1, 45, 30));
      alone = RunAll(backend, {{0, 30}})[0];
    }
    for (const int threads : {1, 3}) {
      at::set_num_threads(threads);
      for (const int64_t step_tokens : {1, 7, 64, 256}) {
        CpuDecodeBackend backend(model,
                                 {.slots = 20, .step_tokens = step_tokens});
        backend.SetAdapter(adapter);
        std::map<int64_t, int64_t> lengths;
        for (int64_t slot = 0; slot < 20; ++slot) {
          if (slot == 11) {
            backend.Step();
            backend.Start(slot, MakeRequest(1, 45, 30));
            lengths[slot] = 30;
          } else {
            backend.Start(
                slot,
                MakeRequest(static_cast<int32_t>(slot) + 2, 3 + slot * 5, 60));
            lengths[slot] = 40;
          }
        }
        EXPECT_EQ(RunAll(backend, lengths)[11], alone)
            << threads << " threads, " << step_tokens << " tokens a step";
      }
    }
  }
}

TEST(CpuDecodeBackendTest, AResumedAnswerGoesOnWithTheSameBits) {
  for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
    const auto weights = MakeModel("qwen3", storage);
    const auto model = PackModel(*weights);
    const auto adapter = MakeAdapter(*weights);
    for (const int64_t step_tokens : {1, 7, 256}) {
      CpuDecodeBackend backend(model, {.slots = 3, .step_tokens = step_tokens});
      backend.SetAdapter(adapter);
      backend.Start(0, MakeRequest(1, 45, 60));
      const auto whole = RunAll(backend, {{0, 60}})[0];
      for (const size_t stopped_after : {1, 20, 59}) {
        std::vector<int32_t> answer;
        for (size_t i = 0; i < stopped_after; ++i) {
          answer.push_back(whole[i].first);
        }
        backend.Start(0, MakeRequest(2, 30, 60));
        backend.Step();
        EXPECT_TRUE(backend.Resume(2, MakeRequest(1, 45, 60), answer));
        const int64_t left = 60 - static_cast<int64_t>(stopped_after);
        const auto rest = RunAll(backend, {{0, 50}, {2, left}})[2];
        EXPECT_EQ(
            rest,
            std::vector(whole.begin() + static_cast<int64_t>(stopped_after),
                        whole.end()))
            << "after " << stopped_after << " tokens, " << step_tokens
            << " tokens a step";
      }
    }
  }
}

TEST(CpuDecodeBackendTest, ScoresWhatItSamples) {
  for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
    const auto weights = MakeModel("qwen2", storage);
    const auto adapter = MakeAdapter(*weights);
    CpuDecodeBackend backend(PackModel(*weights),
                             {.slots = 1, .step_tokens = 11});
    backend.SetAdapter(adapter);
    const DecodeRequest request = MakeRequest(1, 20, 40);
    backend.Start(0, request);
    std::vector<int32_t> ids = request.prompt_ids;
    std::vector<float> sampled;
    const Tokens tokens = RunAll(backend, {{0, 40}});
    for (const auto& [token, logprob] : tokens.at(0)) {
      ids.push_back(token);
      sampled.push_back(logprob);
    }
    const std::vector<float> scores = backend.ScoreTokens(ids);
    ASSERT_EQ(scores.size(), ids.size() - 1);
    EXPECT_EQ(std::vector<float>(scores.begin() + 19, scores.end()), sampled);
  }
}

// The scores of a prompt are those of ScoreTokens, whatever the pieces in which
// it is computed, and change no bit of the answer.
TEST(CpuDecodeBackendTest, ScoresAPromptWhileItIsComputed) {
  for (const Storage storage : {Storage::kFloat32, Storage::kBFloat16}) {
    const auto weights = MakeModel("qwen3", storage);
    const auto model = PackModel(*weights);
    const auto adapter = MakeAdapter(*weights);
    DecodeRequest request = MakeRequest(1, 90, 5);
    AtenBackend slow(DecoderModel(weights), 1, 0);
    slow.SetAdapter(adapter);
    request.score_prompt = true;
    slow.Start(0, request);
    const std::vector<DecodedToken> reference = slow.Step();
    ASSERT_EQ(reference.size(), 90U);
    for (const int64_t step_tokens : {1, 7, 45, 256}) {
      CpuDecodeBackend backend(model, {.slots = 3, .step_tokens = step_tokens});
      backend.SetAdapter(adapter);
      request.score_prompt = false;
      backend.Start(0, request);
      const auto answer = RunAll(backend, {{0, 5}})[0];
      request.score_prompt = true;
      backend.Start(0, MakeRequest(2, 30, 60));
      backend.Start(1, request);
      std::vector<DecodedToken> scored;
      std::vector<std::pair<int32_t, float>> sampled;
      while (sampled.size() < 5) {
        for (const DecodedToken& token : backend.Step()) {
          if (token.slot != 1) continue;
          if (!token.prompt_top.has_value()) {
            sampled.emplace_back(token.token, token.logprob);
            continue;
          }
          EXPECT_TRUE(sampled.empty());
          scored.push_back(token);
        }
      }
      EXPECT_EQ(sampled, answer);
      const std::vector<float> scores = backend.ScoreTokens(request.prompt_ids);
      ASSERT_EQ(scored.size(), 89U);
      double worst = 0.0;
      for (size_t i = 0; i < scored.size(); ++i) {
        EXPECT_EQ(scored[i].token, request.prompt_ids[i + 1]);
        EXPECT_EQ(scored[i].logprob, scores[i]);
        EXPECT_GE(scored[i].prompt_top->logprob, scored[i].logprob);
        worst = Worse(
            worst,
            std::abs(static_cast<double>(scored[i].prompt_top->logprob -
                                         reference[i].prompt_top->logprob)));
        if (storage == Storage::kFloat32) {
          EXPECT_EQ(scored[i].prompt_top->id, reference[i].prompt_top->id);
        }
      }
      std::printf(
          "step of %d tokens: largest error of the most probable "
          "token's log-probability %.2g\n",
          static_cast<int>(step_tokens),
          worst);
      EXPECT_LT(worst, storage == Storage::kBFloat16 ? 0.2 : 1e-4);
    }
  }
}

TEST(CpuDecodeBackendTest, AnAnswerThatIsStoppedWithinItsPromptIsForgotten) {
  const auto model = PackModel(*MakeModel("qwen3", Storage::kFloat32));
  CpuDecodeBackend alone(model, {.slots = 1});
  alone.Start(0, MakeRequest(1, 45, 5));
  const auto expected = RunAll(alone, {{0, 5}})[0];
  CpuDecodeBackend backend(model, {.slots = 2, .step_tokens = 7});
  backend.Start(0, MakeRequest(2, 45, 5));
  EXPECT_TRUE(backend.Step().empty()) << "a part of the prompt";
  backend.Stop(0);
  backend.Start(1, MakeRequest(1, 45, 5));
  EXPECT_EQ(RunAll(backend, {{1, 5}})[1], expected);
}

// A head may have more rows than the tokenizer has tokens.
TEST(CpuDecodeBackendTest, WhatTheTokenizerLacksIsNotSampled) {
  const auto model = PackModel(*MakeModel("qwen3", Storage::kFloat32));
  CpuDecodeBackend backend(model, {.slots = 1, .num_tokens = 10});
  DecodeRequest request = MakeRequest(1, 5, 40);
  request.sampling = {.temperature = 50.0, .max_new_tokens = 40};
  backend.Start(0, request);
  const Tokens tokens = RunAll(backend, {{0, 40}});
  for (const auto& [token, logprob] : tokens.at(0)) EXPECT_LT(token, 10);
}

// Memory is reused from one adapter to the next.
TEST(CpuDecodeBackendTest, NothingIsLeftOfTheAdapterBefore) {
  const auto weights = MakeModel("qwen2", Storage::kFloat32);
  const auto model = PackModel(*weights);
  const std::vector<int32_t> ids = MakeIds(20, 3);
  const auto everywhere = MakeAdapter(*weights);
  const auto somewhere = MakeAdapter(*weights, {"k_proj", "v_proj", "up_proj"});
  auto smaller = std::make_shared<Adapter>(*everywhere);  // values of bfloat16
  for (auto& layer : smaller->layers) {
    for (LoraPair& pair : layer) {
      pair.a = pair.a.to(at::kBFloat16).to(at::kFloat);
      pair.b = pair.b.to(at::kBFloat16).to(at::kFloat);
    }
  }
  auto other = std::make_shared<Adapter>(*everywhere);
  for (auto& layer : other->layers) {
    for (LoraPair& pair : layer) pair.b = pair.b * 1.5;
  }
  CpuDecodeBackend backend(model, {.slots = 1});
  for (const std::shared_ptr<const Adapter>& adapter :
       std::vector<std::shared_ptr<const Adapter>>{everywhere,
                                                   other,
                                                   somewhere,
                                                   everywhere,
                                                   smaller,
                                                   other,
                                                   nullptr,
                                                   somewhere,
                                                   nullptr}) {
    backend.SetAdapter(adapter);
    CpuDecodeBackend fresh(model, {.slots = 1});
    fresh.SetAdapter(adapter);
    EXPECT_EQ(backend.ScoreTokens(ids), fresh.ScoreTokens(ids));
  }
}

TEST(CpuDecodeBackendTest, ProbabilitiesAgreeWithLibTorchs) {
  for (const Storage storage :
       {Storage::kFloat32, Storage::kFloat32OfBFloat16, Storage::kBFloat16}) {
    const auto weights = MakeModel("qwen3", storage);
    const auto adapter = MakeAdapter(*weights);
    CpuDecodeBackend fast(PackModel(*weights), {.slots = 1});
    AtenBackend slow(DecoderModel(weights), 1, 0);
    fast.SetAdapter(adapter);
    slow.SetAdapter(adapter);
    const std::vector<int32_t> ids = MakeIds(90, 5);
    const std::vector<float> a = fast.ScoreTokens(ids);
    const std::vector<float> b = slow.ScoreTokens(ids);
    double worst = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
      worst = Worse(worst, std::abs(static_cast<double>(a[i] - b[i])));
    }
    RecordProperty(std::to_string(static_cast<int>(storage)),
                   std::to_string(worst));
    EXPECT_LT(worst, storage == Storage::kBFloat16 ? 0.2 : 1e-4);
  }
}

TEST(CpuDecodeBackendTest, GreedyAnswersAreLibTorchs) {
  const auto weights = MakeRandomModel("llama");
  CpuDecodeBackend fast(PackModel(*weights), {.slots = 3});
  AtenBackend slow(DecoderModel(weights), 3, 0);
  std::map<int64_t, int64_t> lengths;
  for (int64_t slot = 0; slot < 3; ++slot) {
    DecodeRequest request =
        MakeRequest(static_cast<int32_t>(slot), 10 + slot, 50);
    request.sampling.temperature = 0.0;
    fast.Start(slot, request);
    slow.Start(slot, request);
    slow.Reserve(slot, request.MaxTokens());
    lengths[slot] = 50;
  }
  const Tokens ours = RunAll(fast, lengths);
  const Tokens theirs = RunAll(slow, lengths);
  for (int64_t slot = 0; slot < 3; ++slot) {
    for (size_t i = 0; i < 50; ++i) {
      EXPECT_EQ(ours.at(slot)[i].first, theirs.at(slot)[i].first) << slot;
    }
  }
}

// Returns this process's resident bytes by its page tables: the kernel's own
// count is late.
int64_t ResidentBytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string word;
  int64_t kib = 0;
  while (rollup >> word && word != "Rss:") continue;
  rollup >> kib;
  return kib * 1024;
}

TEST(CpuKvCacheTest, TakesMemoryAsTokensCome) {
  ModelConfig config;
  config.num_layers = 8;
  config.num_kv_heads = 4;
  config.head_dim = 64;
  const std::vector<float> ones(static_cast<size_t>(config.head_dim), 1.0F);
  constexpr int64_t kMiB = int64_t{1} << 20;
  for (const bool is_bfloat16 : {false, true}) {
    const int64_t before = ResidentBytes();
    CpuKvCache cache(config, 40000, is_bfloat16);
    EXPECT_LT(ResidentBytes() - before, kMiB);
    for (const int64_t tokens : {100, 1000}) {
      for (int64_t layer = 0; layer < config.num_layers; ++layer) {
        for (int64_t head = 0; head < config.num_kv_heads; ++head) {
          for (int64_t t = 0; t < tokens; ++t) {
            cache.Write(layer, head, t, ones.data(), ones.data());
          }
        }
      }
      const int64_t taken = ResidentBytes() - before;
      const int64_t charged = CpuKvCache::Bytes(config, tokens, is_bfloat16);
      EXPECT_NEAR(static_cast<double>(taken),
                  static_cast<double>(charged),
                  static_cast<double>(kMiB) / 2)
          << tokens << " tokens";
    }
    EXPECT_LT(CpuKvCache::Bytes(config, 1000, is_bfloat16),
              CpuKvCache::Bytes(config, 40000, is_bfloat16) / 35);
  }
}

TEST(CpuMatrixTest, KeepsWhatFitsInBFloat16AndGivesItBackExactly) {
  for (const bool fits : {true, false}) {
    at::Tensor matrix = at::randn({70, 9});
    if (fits) matrix = matrix.to(at::kBFloat16).to(at::kFloat);
    const CpuMatrix panels(std::span(&matrix, 1));
    EXPECT_EQ(panels.is_bfloat16(), fits);
    EXPECT_EQ(panels.bytes(), 96 * (fits ? 10 * 2 : 9 * 4));
    for (const int64_t row : {0, 31, 32, 69}) {
      std::vector<float> values(9);
      panels.CopyRow(row, values.data());
      EXPECT_TRUE(at::equal(at::tensor(values), matrix[row]));
    }
  }
}

}  // namespace
}  // namespace dapd
