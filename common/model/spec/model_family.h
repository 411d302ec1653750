// The model families, one row of a table each: which traits (model_config.h) a
// family has, and under which key of its config.json it says so.
#pragma once

#include <string>

#include "common/model/spec/field_reader.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// config.json's model_type, or "" where it is none of the table's, which the
// reader then says. To be asked before anything else is read: a model of
// another family keeps its sizes in other places, and its other keys say
// nothing about why it is refused.
std::string ReadModelType(FieldReader& reader);

// Whether the embedding is the head, where config.json does not say so.
bool TiesEmbeddingsByDefault(const std::string& model_type);

// The traits of `config.model_type` from config.json, whose sizes are in
// `config` already.
void ReadFamily(FieldReader& reader, ModelConfig& config);

}  // namespace dapd
