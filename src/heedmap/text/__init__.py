"""What a prompt is: its words, its tokens, its weights; and two prompts, word by word.

Pure text: no library but what `files` needs for its limits and schemas, and no arrays. A tokenizer
is anything that gives character spans; what a correspondence of two prompts is used for is not
known here.
"""

# pyright: reportUnsupportedDunderAll=false
