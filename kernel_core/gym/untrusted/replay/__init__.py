"""The process that replays a recorded trace, without any host code of the candidate."""
