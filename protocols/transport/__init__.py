"""Transport: channels over ZeroMQ or memory, the message codec, keys and receive quotas."""
