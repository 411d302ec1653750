#include "common/model/spec/model_config.h"

#include <filesystem>
#include <string>

#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class ModelConfigTest : public testing::Test {
 protected:
  ModelConfigTest() : folder_(TempPath("folder")) {
    std::filesystem::create_directories(folder_);
  }

  absl::StatusOr<ModelConfig> Read(const std::string& json) {
    EXPECT_TRUE(
        WriteFileAtomically(JoinPath(folder_, "config.json"), json).ok());
    return ReadModelConfig(folder_);
  }

  const std::string folder_;
};

std::string Qwen3Json(int hidden,
                      int ffn,
                      int layers,
                      int heads,
                      bool tied,
                      const std::string& more = "") {
  return R"({"model_type":"qwen3","vocab_size":151936,"hidden_size":)" +
         std::to_string(hidden) + R"(,"intermediate_size":)" +
         std::to_string(ffn) + R"(,"num_hidden_layers":)" +
         std::to_string(layers) + R"(,"num_attention_heads":)" +
         std::to_string(heads) +
         R"(,"num_key_value_heads":8,"head_dim":128,"hidden_act":"silu",)"
         R"("max_position_embeddings":40960,"rms_norm_eps":1e-06,)"
         R"("rope_theta":1000000,"rope_scaling":null,"sliding_window":null,)"
         R"("use_sliding_window":false,"attention_bias":false,)"
         R"("eos_token_id":151645,"tie_word_embeddings":)" +
         (tied ? "true" : "false") + more + "}";
}

TEST_F(ModelConfigTest, CountsOfThePublishedQwen3SizesAreExact) {
  struct Size {
    const char* name;
    int hidden, ffn, layers, heads;
    bool tied;
    int64_t parameters, lora;
  };
  // The numbers are parameters of the published models, and of a LoRA of rank
  // 64 on all seven projections.
  const std::vector<Size> sizes = {
      {"0.6B", 1024, 3072, 28, 16, true, 596049920, 40370176},
      {"1.7B", 2048, 6144, 28, 16, true, 1720574976, 69730304},
      {"4B", 2560, 9728, 36, 32, true, 4022468096, 132120576},
      {"8B", 4096, 12288, 36, 32, false, 8190735360, 174587904},
      {"14B", 5120, 17408, 40, 40, false, 14768307200, 256901120},
      {"32B", 5120, 25600, 64, 64, false, 32762123264, 536870912},
  };
  for (const Size& size : sizes) {
    const auto config = Read(
        Qwen3Json(size.hidden, size.ffn, size.layers, size.heads, size.tied));
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->NumParameters(), size.parameters) << size.name;
    EXPECT_EQ(NumLoraParameters(*config, 64, ProjectionNames(*config)),
              size.lora)
        << size.name;
  }
}

TEST_F(ModelConfigTest, HeadDimIsItsOwnField) {
  EXPECT_EQ(Read(Qwen3Json(2560, 9728, 36, 32, true))->head_dim, 128);
}

TEST_F(ModelConfigTest, TheNewSpellingOfTheRopeBaseIsRead) {
  const auto config = Read(Qwen3Json(
      64,
      96,
      2,
      8,
      true,
      R"(,"rope_parameters":{"rope_theta":5000000,"rope_type":"default"})"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope_theta, 5000000);
}

// Returns a config.json of another family: the keys that every family needs,
// and `more`.
std::string OtherJson(const std::string& family, const std::string& more) {
  return R"({"model_type":")" + family +
         R"(","vocab_size":512,"hidden_size":64,"intermediate_size":96,)"
         R"("num_hidden_layers":2,"num_attention_heads":4,)"
         R"("max_position_embeddings":4096,"eos_token_id":1)" +
         more + "}";
}

// Qwen3.5, Mistral Small 3.1 and Qwen3-VL have their sizes in text_config, and
// models of experts have other keys that are not supported.
TEST_F(ModelConfigTest, AnotherFamilyIsRefusedBeforeAnythingElseIsLookedFor) {
  for (const auto& [json, named] :
       std::vector<std::pair<std::string, std::string>>{
           {R"({"model_type":"qwen3_5","text_config":{"vocab_size":512}})",
            "model_type 'qwen3_5' is not supported"},
           {R"({"model_type":"mistral3","text_config":{"hidden_size":64}})",
            "model_type 'mistral3' is not supported"},
           {R"({"model_type":"qwen3_vl_moe","num_experts":8})",
            "model_type 'qwen3_vl_moe' is not supported"},
           {R"({"model_type":7})", "model_type 7 is not supported"},
           {R"({"vocab_size":512})", "model_type is missing"}}) {
    const absl::Status status = Read(json).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << json;
    EXPECT_NE(status.message().find(named), absl::string_view::npos) << status;
  }
}

TEST_F(ModelConfigTest, AWindowThatShutsNothingOutIsNone) {
  for (const auto& [family, more] :
       std::vector<std::pair<std::string, std::string>>{
           {"mistral", R"(,"sliding_window":null)"},
           {"mistral", R"(,"sliding_window":4096)"},
           {"mistral", ""},  // 4096, as in transformers
           {"qwen2", R"(,"use_sliding_window":false,"sliding_window":16)"},
           {"qwen2", R"(,"use_sliding_window":true,"sliding_window":4096)"},
           {"qwen2",
            R"(,"use_sliding_window":true,"sliding_window":16,)"
            R"("max_window_layers":2)"},
           {"qwen2",
            R"(,"use_sliding_window":true,"sliding_window":16,)"
            R"("layer_types":["full_attention","full_attention"])"},
           {"qwen2",
            R"(,"use_sliding_window":true,"sliding_window":9999,)"
            R"("layer_types":["full_attention","sliding_attention"])"},
           {"llama", R"(,"sliding_window":16)"}}) {
    EXPECT_TRUE(Read(OtherJson(family, more)).ok())
        << family << more << Read(OtherJson(family, more)).status();
  }
}

TEST_F(ModelConfigTest, AWindowOfNullIsNone) {
  const auto read = [this](const std::string& more) {
    std::string json = OtherJson(
        "qwen2", R"(,"use_sliding_window":true,"sliding_window":null)" + more);
    // The context is longer than the window that transformers takes by default.
    json.replace(json.find("4096"), 4, "40960");
    return Read(json).status();
  };
  EXPECT_TRUE(read(R"(,"max_window_layers":0)").ok())
      << read(R"(,"max_window_layers":0)");
  EXPECT_FALSE(
      read(R"(,"layer_types":["full_attention","sliding_attention"])").ok())
      << "nobody could say how long it is";
}

TEST_F(ModelConfigTest, AShorterWindowIsOfTheLayersThatTheFamilyNames) {
  struct Case {
    std::string family;
    std::string more;
    std::vector<int64_t> windows;
  };
  for (const auto& [family, more, windows] :
       {Case{"mistral", R"(,"sliding_window":4095)", {4095, 4095}},
        Case{"qwen2",
             R"(,"use_sliding_window":true,"sliding_window":16,)"
             R"("max_window_layers":1)",
             {0, 16}},
        Case{"qwen3",
             R"(,"use_sliding_window":true,"sliding_window":16,)"
             R"("layer_types":["sliding_attention","full_attention"])",
             {16, 0}}}) {
    const auto config = Read(OtherJson(family, more));
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->windows, windows) << family << more;
    EXPECT_EQ(LayerRecipeOf(*config, 1).attention.window, windows[1]);
  }
}

// The config.json of google/gemma-2-2b, as transformers 4.42 wrote it.
TEST_F(ModelConfigTest, Gemma2HasTheTraitsOfItsRow) {
  const auto config =
      Read(R"({"model_type":"gemma2","vocab_size":256000,"hidden_size":2304,)"
           R"("intermediate_size":9216,"num_hidden_layers":26,)"
           R"("num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,)"
           R"("hidden_act":"gelu_pytorch_tanh",)"
           R"("hidden_activation":"gelu_pytorch_tanh","attention_bias":false,)"
           R"("attn_logit_softcapping":50.0,"final_logit_softcapping":30.0,)"
           R"("query_pre_attn_scalar":256,"sliding_window":4096,)"
           R"("max_position_embeddings":8192,"rms_norm_eps":1e-06,)"
           R"("rope_theta":10000.0,"eos_token_id":1,"bos_token_id":2})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->NumParameters(), 2614341888);
  EXPECT_TRUE(config->tied_embeddings);
  const LayerRecipe first = LayerRecipeOf(*config, 0);
  EXPECT_EQ(first.attention.window, 4096);
  EXPECT_EQ(first.attention.softcap, 50);
  EXPECT_EQ(first.attention.scale, 1.0 / 16);
  EXPECT_EQ(first.norm_scale, NormScale::kOnePlusWeight);
  EXPECT_EQ(first.mlp.activation, Activation::kGeluTanh);
  EXPECT_TRUE(first.HasNorm(NormPlace::kAfterMlp));
  EXPECT_EQ(LayerRecipeOf(*config, 1).attention.window, 0);
  const ModelRecipe model = ModelRecipeOf(*config);
  EXPECT_EQ(model.embedding_scale, 48);
  EXPECT_EQ(model.logit_softcap, 30);
  EXPECT_EQ(model.final_norm, NormScale::kOnePlusWeight);
}

TEST_F(ModelConfigTest, LayerTypesAreAsManyAsLayers) {
  const absl::Status status =
      Read(OtherJson("qwen3",
                     R"(,"use_sliding_window":true,"sliding_window":16,)"
                     R"("layer_types":["sliding_attention"])"))
          .status();
  EXPECT_NE(status.message().find("has 1 entries for 2 layers"),
            absl::string_view::npos)
      << status;
}

TEST_F(ModelConfigTest, GenerationConfigNamesTheEndTokens) {
  ASSERT_TRUE(WriteFileAtomically(JoinPath(folder_, "generation_config.json"),
                                  R"({"eos_token_id":[151645,151643]})")
                  .ok());
  const auto config = Read(Qwen3Json(64, 96, 2, 8, true));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->eos_token_ids, (std::vector<int64_t>{151645, 151643}));
}

TEST_F(ModelConfigTest, WhatTheDecoderDoesNotComputeIsRefusedByItsKey) {
  for (const auto& [more, key] :
       std::vector<std::pair<std::string, std::string>>{
           {R"(,"rope_scaling2":1,"quantization_config":{"a":1})",
            "quantization_config"},
           {R"(,"num_experts":8)", "num_experts"},
           {R"(,"rope_parameters":{"rope_type":"dynamic","factor":4})",
            "rope_parameters"},
           {R"(,"rope_parameters":{"full_attention":{"rope_theta":5e6,)"
            R"("rope_type":"default"}})",
            "rope_parameters: full_attention"},
           {R"(,"layer_types":["full_attention","sliding_attention"])",
            "layer_types"},
           {R"(,"pretraining_tp":2)", "pretraining_tp"},
           {R"(,"per_layer_config":{"1":{"rms_norm_eps":0.5}})",
            "per_layer_config"},
           {R"(,"is_causal":false)", "is_causal"}}) {
    const absl::Status status =
        Read(Qwen3Json(64, 96, 2, 8, true, more)).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << more;
    EXPECT_NE(status.message().find(key), absl::string_view::npos) << status;
  }
}

TEST_F(ModelConfigTest, EndTokensAreIdsOfTheVocabulary) {
  for (const char* ids : {"true", "1.0", "-1", "512", "[1, 1.5]", "[1e30]"}) {
    const absl::Status status =
        Read(OtherJson("llama", "")
                 .replace(OtherJson("llama", "").find("\"eos_token_id\":1"),
                          16,
                          std::string("\"eos_token_id\":") + ids))
            .status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << ids;
    EXPECT_NE(status.message().find("eos_token_id["), absl::string_view::npos)
        << status;
  }
}

TEST_F(ModelConfigTest, AnAdapterFolderIsRecognised) {
  ASSERT_TRUE(
      WriteFileAtomically(JoinPath(folder_, "adapter_config.json"), "{}").ok());
  const absl::Status status = ReadModelConfig(folder_).status();
  EXPECT_NE(status.message().find("holds an adapter"), absl::string_view::npos)
      << status;
}

// transformers would compute another model.
TEST_F(ModelConfigTest, AnAdapterBesideTheModelIsNotLeftOutInSilence) {
  const std::string model = OtherJson("llama", "");
  const auto write = [&](const char* file) {
    return WriteFileAtomically(JoinPath(folder_, file), "{}").ok();
  };
  ASSERT_TRUE(write("adapter_config.json"));
  EXPECT_TRUE(Read(model).ok());
  ASSERT_TRUE(write("adapter_model.safetensors"));
  // Some programs write the base's configuration beside their adapters.
  EXPECT_NE(Read(model).status().message().find("an adapter, not a model"),
            absl::string_view::npos);
  ASSERT_TRUE(write("model.safetensors"));
  const absl::Status status = Read(model).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_NE(status.message().find(folder_ + " holds an adapter beside the"),
            absl::string_view::npos)
      << status;
}

TEST_F(ModelConfigTest, ImpossibleNumbersAreRefused) {
  for (const char* json : {R"({"model_type":"gpt2","vocab_size":1})",
                           R"([])",
                           R"({)",
                           R"({"model_type":"qwen3","vocab_size":-5})",
                           R"({"model_type":"qwen3","vocab_size":"many"})"}) {
    EXPECT_EQ(ExitCodeOf(Read(json).status()), ExitCode::kData) << json;
  }
}

}  // namespace
}  // namespace dapd
