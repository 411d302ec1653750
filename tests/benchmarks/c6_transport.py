"""C6: hidden states from a teacher's service into the trainer's tensors, against plain sockets on loopback.

DAPD_C6_REQUESTS (40) is the number of requests per round, each with five views of 1,024 tokens of Qwen3-4B (26 MB).
"""

import os

from duel import BIN, Contender, Ratio, Row, duel, median

REQUESTS = int(os.environ.get("DAPD_C6_REQUESTS", "40"))
VOCABULARY = 151936


def main():
    row = Row("C6", "hidden states as 1 MiB messages into destination tensors, teacher service to trainer client on loopback")
    with Contender("teacher", [BIN / "dapd_transport_benchmark", "teacher"]) as teacher, \
         Contender("sink", [BIN / "dapd_raw_transfer_benchmark", "sink"]) as sink, \
         Contender("trainer", [BIN / "dapd_transport_benchmark", "trainer", teacher.ready["address"], REQUESTS,
                               *teacher.ready["crc32c"]]) as trainer:
        checked = trainer.round("check")
        row.check("tensors whose checksum is not the teacher's", checked["wrong"], 0)
        shape = trainer.ready
        size = shape["views"] * shape["tokens"] * shape["hidden"] * 2 * REQUESTS
        row.check("bytes counted and bytes received differ by", abs(size - checked["bytes"]), 0)
        with Contender("raw TCP", [BIN / "dapd_raw_transfer_benchmark", "push", size, sink.ready["port"]]) as raw:
            # The answering processes report their CPU time of the round before.
            ours, sending, plain, _ = duel(trainer, teacher, raw, sink)
    gigabytes = size / 1e9
    row.figure("payload", f"{gigabytes:.2f} GB in {shape['views'] * REQUESTS} tensors")
    row.figure("ours", f"{gigabytes / median(ours):.2f} GB/s")
    row.figure("raw TCP and a copy", f"{gigabytes / median(plain):.2f} GB/s")
    speed = Ratio(ours, plain)
    row.figure("speed of raw TCP reached", speed, ">= 0.55x", speed.median >= 0.55)
    for side, figures in (("teacher", sending), ("trainer", ours)):
        cpu = median(figures, "cpu_seconds") / gigabytes
        row.figure(f"CPU time, {side}", f"{cpu:.2f} s/GB", "<= 0.5 s/GB", cpu <= 0.5)
    ratio = 4 * VOCABULARY / (2 * shape["hidden"])
    row.figure("bytes of the same rows as float32 logits", f"{ratio:.0f}x ({ratio / 2:.0f}x as bfloat16)", ">= 59x", ratio / 2 >= 59)
