"""The pages of results: self-contained HTML files."""
