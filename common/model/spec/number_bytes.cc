#include "common/model/spec/number_bytes.h"

namespace dapd {

int64_t NumberBytes(const Config& config) {
  return config.model.precision == Precision::kFloat32 ? 4 : 2;
}

int64_t KvTokenBytes(const Config& config, const ModelConfig& model) {
  return 2 * model.num_layers * NumberBytes(config) * model.num_kv_heads *
         model.head_dim;
}

int64_t ScoreBytes(const Config& config, const ModelConfig& model) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  const TeacherSection& teacher = config.teacher;
  if (teacher.payload == Payload::kLogits) return kFloat * model.vocab_size;
  if (teacher.payload == Payload::kTopK) {
    return (static_cast<int64_t>(sizeof(int32_t)) + kFloat) * teacher.top_k;
  }
  return NumberBytes(config) * model.hidden_size;
}

}  // namespace dapd
