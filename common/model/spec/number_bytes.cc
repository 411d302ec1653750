#include "common/model/spec/number_bytes.h"

#include <algorithm>

#include "common/kernels/float8.h"

namespace dapd {

int64_t NumberBytes(const Config& config) {
  return config.model.precision == Precision::kFloat32 ? 4 : 2;
}

int64_t KvTokenBytes(const Config& config, const ModelConfig& model) {
  return 2 * model.num_layers * NumberBytes(config) * model.num_kv_heads *
         model.head_dim;
}

int64_t AnswerTokenBytes(const Config& config, const ModelConfig& model) {
  if (config.rollout.kv_precision == KvPrecision::kModel) {
    return KvTokenBytes(config, model);
  }
  return 2 * model.num_layers * model.num_kv_heads *
         Float8PartBytes(model.head_dim) / kPageTokens;
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

int64_t MostScoreBytes(const Config& config,
                       const ModelConfig& model,
                       const FurtherTeachers& teachers) {
  int64_t bytes = ScoreBytes(config, model);
  for (const FurtherTeacher& teacher : teachers) {
    bytes = std::max(bytes, ScoreBytes(config, teacher.model));
  }
  return bytes;
}

double HeadBytes(const Config& config, const FurtherTeachers& teachers) {
  double bytes = 0;
  for (const FurtherTeacher& teacher : teachers) {
    bytes += static_cast<double>(NumberBytes(config)) *
             static_cast<double>(teacher.model.vocab_size) *
             static_cast<double>(teacher.model.hidden_size);
  }
  return bytes;
}

}  // namespace dapd
