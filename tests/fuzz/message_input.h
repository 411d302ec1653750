// Inputs that are protobuf messages, written as text, so that a corpus can be
// read and a finding understood. A target includes this file once and gets,
// besides ParseInput, a mutator that changes the message and not its letters:
//
//   DAPD_FUZZ_MESSAGES(dapd::fuzz::TensorStream, dapd::Run)
#pragma once

#include <cstddef>
#include <cstdint>

#include "google/protobuf/message.h"

namespace dapd {

// False if the text is no such message.
bool ParseInput(const uint8_t* data,
                size_t size,
                google::protobuf::Message* message);

// Changes the message that `data` holds, at random by `seed`: drops, copies and
// swaps entries, sets fields to extreme and to near values. Returns the new
// size.
size_t MutateMessage(uint8_t* data,
                     size_t size,
                     size_t max_size,
                     unsigned seed,
                     google::protobuf::Message* scratch);

}  // namespace dapd

// libFuzzer's entry points of a target whose input is one `Message`, which
// `run` takes.
#define DAPD_FUZZ_MESSAGES(Message, run)                                    \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    Message message;                                                        \
    if (dapd::ParseInput(data, size, &message)) run(message);               \
    return 0;                                                               \
  }                                                                         \
  extern "C" size_t LLVMFuzzerCustomMutator(                                \
      uint8_t* data, size_t size, size_t max_size, unsigned seed) {         \
    Message message;                                                        \
    return dapd::MutateMessage(data, size, max_size, seed, &message);       \
  }
