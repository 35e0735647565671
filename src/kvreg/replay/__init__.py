"""Replays a trace of requests through a stand-in engine and a real host tier."""
