"""The files of saved results: their schemas, and how they are read and written.

This package imports no torch.
"""
