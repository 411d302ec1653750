#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> ModelKeys(Config& c) {
  return {
      Text("model.path",
           &c.model.path,
           "Base model: a Hugging Face folder (a family of docs/hub.md, with a "
           "byte-level tokenizer), or the model's id on the hub with an "
           "optional revision (Qwen/Qwen3-4B@main), which is looked up in the "
           "local cache.")
          .IsPath()
          .MayChange(),
      Text("model.name",
           &c.model.name,
           "Id of the base model on the hub, with an optional revision, for a "
           "model.path that is a folder. Adapters and their model cards record "
           "this id, so that other people can find the base model. Empty: they "
           "record model.path.")
          .MayChange(),
      OneOf("model.precision",
            &c.model.precision,
            "Precision of the base weights."),
      OneOf("model.device",
            &c.model.device,
            "Device that computes the model. auto: a GPU if one can be used, "
            "the CPU otherwise."),
      Any("model.deterministic",
          &c.model.deterministic,
          "Whether a run on a GPU gives the same bits every time on the same "
          "GPU with the same versions. This is slower: the backward pass of "
          "attention adds in a fixed order; matrix products have fixed "
          "workspaces and, in bfloat16, are not split along the summed "
          "dimension; packs do not depend on free memory. If false, the order "
          "of some sums, and with it the last bits of a result, may change "
          "from run to run. Results on a CPU are always the same, so the key "
          "has no effect there.")
          .MayChange(),
  };
}

std::vector<ConfigKey> LoraKeys(Config& c) {
  return {
      Range("lora.rank", &c.lora.rank, 1, 4096, "Rank of the adapter."),
      Above("lora.alpha",
            &c.lora.alpha,
            0,
            kMillion,
            "Scale of the adapter: its update is multiplied by alpha / rank."),
      [&c] {
        ConfigKey key = Any("lora.targets",
                            &c.lora.targets,
                            "Projections that get an adapter.");
        key.choices = {"q_proj",
                       "k_proj",
                       "v_proj",
                       "o_proj",
                       "gate_proj",
                       "up_proj",
                       "down_proj"};
        return key;
      }(),
      Text("lora.start_from",
           &c.lora.start_from,
           "Adapter to continue from: a PEFT folder, or an id on the hub. It "
           "is also the first snapshot. Its rank, alpha and targets must equal "
           "the keys above. Empty: a new adapter.")
          .IsPath(),
  };
}

}  // namespace dapd
