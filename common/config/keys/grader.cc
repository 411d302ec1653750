#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> GraderKeys(Config& c) {
  return {
      Any("grader.command",
          &c.grader.command,
          "Program that grades answers instead of the built-in grader, with "
          "its arguments (docs/graders.md): [python3, grade.py]. It is looked "
          "up in PATH and started in the folder where the trainer runs. Empty: "
          "no program.")
          .IsCommand()
          .MayChange(),
      Text("grader.url",
           &c.grader.url,
           "URL of a service that grades answers instead of the built-in "
           "grader: http://... or https://.... Not together with "
           "grader.command. Empty: no service.")
          .MayChange(),
      Text("grader.secret_file",
           &c.grader.secret_file,
           "File with mode 600 that contains a secret for grader.url: a token "
           "(sent as Authorization: Bearer) or a complete header (Name: "
           "value).")
          .IsPath()
          .MayChange(),
      Text("grader.ca_file",
           &c.grader.ca_file,
           "PEM file with the certificate authorities that may issue the "
           "certificate of the server in grader.url. Empty: the system's "
           "authorities.")
          .IsPath()
          .MayChange(),
      Above("grader.timeout_seconds",
            &c.grader.timeout_seconds,
            0,
            kMillion,
            "Time limit for the program to grade one answer, or for one "
            "request to the service. The start of the program counts towards "
            "its first answer.")
          .MayChange(),
      Range("grader.workers",
            &c.grader.workers,
            1,
            1024,
            "Number of programs that each trainer process runs, or number of "
            "requests that it has open at a time.")
          .MayChange(),
      Range("grader.memory_mib",
            &c.grader.memory_mib,
            0,
            100 * kMillion,
            "MiB of address space that each process of grader.command may "
            "take. 0: no limit.")
          .MayChange(),
      Range("grader.max_output_bytes",
            &c.grader.max_output_bytes,
            256,
            1 << 30,
            "Maximum number of bytes of a line that the program writes, or of "
            "a response of the service per answer of the request.")
          .MayChange(),
      Range("grader.max_feedback_bytes",
            &c.grader.max_feedback_bytes,
            0,
            kMillion,
            "Maximum number of bytes of feedback that is used. Longer "
            "feedback is cut at its end.")
          .CountsUnlessDefault(),
      Range("grader.batch",
            &c.grader.batch,
            1,
            4096,
            "Maximum number of answers in a request to grader.url.")
          .MayChange(),
      Range("grader.retries",
            &c.grader.retries,
            0,
            100,
            "How often a request to grader.url that failed is sent again. The "
            "pauses in between grow from half a second to 30 seconds.")
          .MayChange(),
      OneOf("grader.on_error",
            &c.grader.on_error,
            "Action if the grader has not graded an answer in all of its "
            "attempts. ungraded: the answer counts as not right and has no "
            "feedback, a metric counts it, and the run goes on. fail: the run "
            "stops; the same command resumes it.")
          .MayChange(),
  };
}

}  // namespace dapd
