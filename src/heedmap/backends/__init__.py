"""All that knows how diffusers builds its models, and where to listen.

Which layers read the text, what a pipeline encodes, at which step it is, what it is made of and
called with. A family of models is one file and a row of `registry`. Nothing of what is recorded or
changed there.
"""
