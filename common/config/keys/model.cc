#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> ModelKeys(Config& c) {
  return {
      Text("model.path",
           &c.model.path,
           "Hugging Face folder of the base model (a family of docs/hub.md, "
           "with a byte-level tokenizer), or its id on the hub with an "
           "optional revision (Qwen/Qwen3-4B@main), found in the local cache.")
          .IsPath()
          .MayChange(),
      Text("model.name",
           &c.model.name,
           "The base's id on the hub, with an optional revision, if model.path "
           "is a folder: adapters and their model cards record it, so that "
           "others can find the base. Empty: what model.path says.")
          .MayChange(),
      Text("model.precision",
           &c.model.precision,
           "Precision of the base weights.",
           {"float32", "bfloat16"}),
      Text("model.device",
           &c.model.device,
           "Device that computes the model; auto: a GPU if one can be used, "
           "else the CPU.",
           {"auto", "cpu", "cuda"}),
      Any("model.deterministic",
          &c.model.deterministic,
          "On a GPU: whether a run ends in the same bits each time on the same "
          "GPU and versions. It is slower: attention's backward pass adds in a "
          "fixed order; products have fixed workspaces and, in bfloat16, are "
          "not split along the dimension that they sum over; packs do not "
          "depend on free memory. Without it the order of some sums, and so "
          "the last bits, may change from run to run. On a CPU results are "
          "always the same, and this changes nothing.")
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
            "The update is scaled by alpha / rank."),
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
           "PEFT folder of an adapter to continue from, or its id on the hub; "
           "it is also the first snapshot. Rank, alpha and targets must be "
           "those above. Empty: a new adapter.")
          .IsPath(),
  };
}

}  // namespace dapd
