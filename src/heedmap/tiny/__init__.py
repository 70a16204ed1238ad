"""The embedded world (captions, pictures, exact masks) and the embedded model's files.

The world is drawn without a model: no torch, no diffusers.
"""
