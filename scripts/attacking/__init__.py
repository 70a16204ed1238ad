"""What `attack.py` does, a file a question; whatever is found is a `findings.Finding`."""
