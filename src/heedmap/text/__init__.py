"""Prompts: their words, tokens and weights, and the correspondence of two prompts.

Pure text, without arrays. A tokenizer is anything that gives character offsets.
"""
