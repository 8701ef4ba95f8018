"""Where the frames of a WebSocket end, and what is refused before the package websockets reads it.

That package takes some microseconds for a frame, however small; so the fragments of a message are limited.
"""

from __future__ import annotations

FIN, MASKED, LENGTH, OPCODE = 0x80, 0x80, 0x7F, 0x0F  # bits of the first two bytes
CONTINUATION, CLOSE, CONTROL, PING = 0, 8, 8, 9  # opcodes; all from CONTROL on are control frames
WIDTHS = {126: 2, 127: 8}  # bytes of an extended length, after the first two
MASK = 4  # bytes
LONGEST_CONTROL = 125  # bytes
MOST_FRAGMENTS = 1024  # of one message
PROTOCOL_ERROR, POLICY, NO_ANSWER = 1002, 1008, 1011  # why a connection is closed


class Refused(Exception):
    """Closes the connection with this code and reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.frame = control_frame(CLOSE, code.to_bytes(2, "big") + reason.encode())


class Frames:
    """`next` finds one frame after another, in several parts if it arrives in several."""

    complete = False  # the client has closed the WebSocket
    left = 0  # bytes of the newest frame that have not arrived
    fragments = 0  # of the newest message

    def next(self, data: bytes, at: int) -> tuple[bytes, int]:
        """The next part, and where it ends; it is empty and ends at `at` if more bytes must arrive."""
        if not self.left:
            self._read_header(data, at)
        end = min(len(data), at + self.left)
        self.left -= end - at
        return data[at:end], end

    def _read_header(self, data: bytes, at: int) -> None:
        """Sets `left`, if all of the header has arrived."""
        if len(data) < at + 2:
            return
        opcode, size = data[at] & OPCODE, data[at + 1] & LENGTH
        if opcode >= CONTROL and size > LONGEST_CONTROL:
            raise Refused(PROTOCOL_ERROR, "control frame too long")
        end = at + 2
        if size in WIDTHS:
            end += WIDTHS[size]
            if len(data) < end:
                return
            size = int.from_bytes(data[at + 2 : end], "big")
        if opcode < CONTROL:
            self.fragments = self.fragments + 1 if opcode == CONTINUATION else 1
            if self.fragments > MOST_FRAGMENTS:
                raise Refused(POLICY, f"over {MOST_FRAGMENTS} fragments in a message")
        self.complete |= opcode == CLOSE
        self.left = end - at + (MASK if data[at + 1] & MASKED else 0) + size


def control_frame(opcode: int, payload: bytes = b"") -> bytes:
    return bytes((FIN | opcode, len(payload))) + payload
