"""What `attack.py` does, a file for each question; whatever is found is a `findings.Finding`."""
