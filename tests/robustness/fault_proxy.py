"""A TCP proxy between the trainer and one worker that misbehaves as it is told."""

import asyncio
import threading


class FaultProxy:
    """Forwards `port` to `target_port` on loopback. The attributes may be changed at any time:

    blackhole   nothing is forwarded any more in either direction; connections stay open, new ones hang
    refuse      new connections are closed at once
    delay       seconds by which every chunk is late
    rate        bytes per second in each direction; None: no limit
    corrupt     number of the next chunks from the worker in which one bit is flipped
    """

    def __init__(self, target_port):
        self.target_port = target_port
        self.port = None
        self.blackhole = self.refuse = False
        self.delay = 0.0
        self.rate = None
        self.corrupt = 0
        self.connections = 0
        self._writers = set()
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def reset(self):
        """Breaks every connection."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self, ready):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        server.close()
        self._abort_all()

    def _abort_all(self):
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader, writer):
        self.connections += 1
        self._writers.add(writer)
        try:
            if self.refuse:
                return
            await self._wait_while_black()
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            self._writers.add(upstream_writer)
            try:
                await asyncio.gather(self._pump(reader, upstream_writer, False), self._pump(upstream_reader, writer, True))
            finally:
                self._writers.discard(upstream_writer)
                upstream_writer.transport.abort()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _wait_while_black(self):
        while self.blackhole:
            await asyncio.sleep(0.02)

    async def _pump(self, reader, writer, from_worker):
        while data := await reader.read(1 << 16):
            if self.delay:
                await asyncio.sleep(self.delay)
            if self.rate:
                await asyncio.sleep(len(data) / self.rate)
            await self._wait_while_black()
            if from_worker and self.corrupt > 0:
                self.corrupt -= 1
                data = bytearray(data)
                data[len(data) // 2] ^= 0x10
            writer.write(bytes(data))
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
