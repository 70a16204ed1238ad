"""The embedded world (captions, pictures, exact masks) and the embedded model's files."""
