"""All that crosses the trust boundary: framing, messages, shared memory and codecs."""
