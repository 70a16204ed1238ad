"""The embedded model: its files in `model/`, and what they say of it without being loaded.

No torch, no diffusers. The drawn world that it was trained on is `scripts/world`.
"""
