// The model families, one row of a table each: the traits (model_config.h) of a
// family, and the keys of its config.json that set them.
#pragma once

#include <string>

#include "common/model/spec/field_reader.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// Returns config.json's model_type, or "" if the table lacks it, with a problem
// in `reader`. Call this before reading anything else: a model of another
// family keeps its sizes in other places, and its other keys do not explain the
// refusal.
std::string ReadModelType(FieldReader& reader);

// Returns whether the embedding is the head if config.json does not say so.
bool TiesEmbeddingsByDefault(const std::string& model_type);

// Reads the traits of `config.model_type` from config.json. The sizes must
// already be in `config`.
void ReadFamily(FieldReader& reader, ModelConfig& config);

}  // namespace dapd
