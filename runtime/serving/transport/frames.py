"""WebSocket messages that fit into one frame, without the parser of the package websockets.

That parser is a chain of generators and takes several times as long. Whole text frames are read here. All other
frames (control frames, fragments, binary and invalid frames) go to the parser, each as a whole, so that the
parser is always between two frames.
"""

from __future__ import annotations

from typing import Any

FIN, MASKED, LENGTH, OPCODE = 0x80, 0x80, 0x7F, 0x0F  # bits of the first two bytes
TEXT, CONTROL = 1, 8  # opcodes; all from 8 on are control frames
WIDTHS = {126: 2, 127: 8}  # bytes of an extended length, after the first two
MASK = 4  # bytes
MOST_CONTROL = 2 + MASK + 125  # bytes; the parser would read all of a longer one first
PROTOCOL_ERROR = 1002


def make_protocol() -> type[Any]:
    """A subclass of uvicorn's protocol, which is imported only when it is needed."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
    from websockets import frames
    from websockets.protocol import State

    apply_mask: Any = vars(frames)["apply_mask"]  # the C version if it could be compiled

    class Frames(WebSocketsSansIOProtocol):
        early = 0  # reads before the end of the handshake; the first is the request
        by_parser = False  # the parser gets everything from now on
        fragmented = False  # a message has begun in an earlier frame
        wanted = 0  # size of the frame whose beginning is in `unread`

        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.unread = bytearray()

        def is_open(self) -> bool:
            done = self.handshake_complete and not self.close_sent and not self.disconnected
            return done and self.conn.state is State.OPEN

        def data_received(self, data: bytes) -> None:
            self.early += not self.handshake_complete
            self.by_parser |= self.early > 1  # it may be inside a frame
            if self.unread:
                self.unread += data
                if len(self.unread) < self.wanted and self.is_open():
                    return
                data = bytes(self.unread)
                self.unread.clear()
            start = 0
            while start < len(data):
                if self.by_parser or not self.is_open():
                    super().data_received(data[start:])
                    return
                end = frame_end(data, start)
                if data[start] & CONTROL and end - start > MOST_CONTROL:
                    self.conn.fail(PROTOCOL_ERROR, "control frame too long")
                    self.handle_parser_exception()
                    return
                if end - start > self.config.ws_max_size:  # the parser refuses it
                    self.by_parser = True
                    continue
                if end > len(data):
                    self.unread += data[start:]
                    self.wanted = end - start
                    return
                self.frame_received(data[start:end])
                start = end

        def frame_received(self, frame: bytes) -> None:
            if frame[0] == FIN | TEXT and frame[1] & MASKED and not self.fragmented:
                begin = payload_of(frame, 0)
                try:
                    text = apply_mask(frame[begin:], frame[begin - MASK : begin]).decode()
                except UnicodeDecodeError:
                    pass  # uvicorn closes the connection
                else:
                    self.queue.put_nowait({"type": "websocket.receive", "text": text})
                    if self.queue.qsize() > 1 and not self.read_paused:
                        self.read_paused = True
                        self.transport.pause_reading()
                    return
            if frame[0] & OPCODE < CONTROL:
                self.fragmented = not frame[0] & FIN
            super().data_received(frame)

        def handle_cont(self, event: Any) -> None:
            """Empty fragments without end would fill the memory."""
            if event.data or event.fin:
                super().handle_cont(event)

        def handle_ping(self) -> None:
            """The pongs of a client that does not read would fill the memory."""
            output = self.conn.data_to_send()
            if self.writable.is_set():
                self.transport.write(b"".join(output))

        async def send(self, message: Any) -> None:
            text = message.get("text") if message["type"] == "websocket.send" else None
            if text is not None and not self.writable.is_set():
                await self.writable.wait()
            if text is None or not self.is_open():
                await super().send(message)
            else:
                self.transport.write(text_frame(text.encode()))

    return Frames


def payload_of(data: bytes, start: int) -> int:
    """Where the payload of the frame at `start` begins."""
    second = data[start + 1]
    return start + 2 + WIDTHS.get(second & LENGTH, 0) + (MASK if second & MASKED else 0)


def frame_end(data: bytes, start: int) -> int:
    """Where the frame at `start` ends; if its length field has not arrived yet, where that field ends."""
    if len(data) < start + 2:
        return start + 2
    begin, size = payload_of(data, start), data[start + 1] & LENGTH
    if width := WIDTHS.get(size):
        if len(data) < start + 2 + width:
            return start + 2 + width
        size = int.from_bytes(data[start + 2 : start + 2 + width], "big")
    return begin + size


def text_frame(payload: bytes) -> bytes:
    """A message of the server."""
    size = len(payload)
    if size < 126:
        return bytes((FIN | TEXT, size)) + payload
    code = 126 if size < 1 << 16 else 127
    return bytes((FIN | TEXT, code)) + size.to_bytes(WIDTHS[code], "big") + payload
